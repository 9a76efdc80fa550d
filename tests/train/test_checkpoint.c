/* Checkpoints: files that are cut, corrupt or many; which of them stay; and a state that is of no step is never saved. */
#include "check.h"
#include "folder.h"
#include "lockstep/train.h"
#include "train/checkpoint.h"
#include "train/checkpoint_file.h"
#include "train/training.h"
#include <sys/stat.h>

static ls_train_options tiny(const char *run_dir)
{
    return (ls_train_options){ .model = { .layers = 1, .width = 16, .heads = 1 },
                               .batch_size = 2,
                               .seq_len = 16,
                               .steps = 6,
                               .threads = 1,
                               .workers = -1,
                               .no_record = true,
                               .no_tensorboard = true,
                               .checkpoint_every = 1,
                               .run_dir = run_dir };
}

static void steps(ls_train *t, int n)
{
    ls_train_metrics m;
    for (int i = 0; i < n; i++) check_ok(ls_train_step(t, &m));
}

static void write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void a_file_that_is_cut_while_it_is_read_is_an_error(void **state)
{
    (void)state;
    enum { ELEMENTS = 3 << 18 }; /* three parts of reading */
    float *numbers = calloc(ELEMENTS, sizeof *numbers);
    const float *blocks[] = { numbers };
    ls__checkpoint_file f;
    char head[200];
    snprintf(head, sizeof head,
             "{\"step\":1,\"epoch\":0,\"data_step\":0,\"data_print\":0,\"elements\":%d,\"blocks\":1}", (int)ELEMENTS);
    check_ok(ls__checkpoint_file_write("cut", head, blocks, 1, ELEMENTS, NULL, 0));
    check_ok(ls__checkpoint_file_open(&f, "cut"));
    check_ok(ls__checkpoint_file_read(&f, NULL, NULL));
    assert_int_equal(truncate("cut", 2 << 20), 0);
    check_fails(ls__checkpoint_file_read(&f, NULL, NULL), LS_EFORMAT, "cut: was truncated at byte 2097152");
    ls__checkpoint_file_close(&f);
    ls_checkpoint_info info;
    check_fails(ls_checkpoint_verify("cut", &info), LS_EFORMAT, "the header expects");
    free(numbers);
}

static void all_files_of_a_folder_are_seen(void **state)
{
    (void)state;
    enum { FILES = 5000 };
    assert_int_equal(mkdir("many", 0777), 0);
    for (int i = 1; i <= FILES; i++) {
        char *path = ls__checkpoint_path("many", i);
        write_text(path, "");
        free(path);
    }
    static const char *const others[] = { "many/step-7.ckpt", "many/step-000000008.ckpt.old",
                                          "many/.step-000000009.ckpt", "many/step-000000000.ckpt",
                                          "many/step--00000001.ckpt" };
    for (int i = 0; i < 5; i++) write_text(others[i], "");
    int64_t *list;
    size_t n;
    check_ok(ls__checkpoint_list("many", &list, &n));
    assert_int_equal(n, FILES);
    for (int i = 0; i < FILES; i++) assert_int_equal(list[i], FILES - i);
    free(list);
    check_ok(ls__checkpoint_list("nowhere", &list, &n));
    assert_int_equal(n, 0);
    assert_null(list);
}

static bool exists(const char *where, int64_t step)
{
    char *path = ls__checkpoint_path(where, step);
    bool there = access(path, F_OK) == 0;
    free(path);
    return there;
}

/* A newer file that is corrupt must not push out those that are intact. */
static void corrupt_files_do_not_count_among_those_that_stay(void **state)
{
    (void)state;
    ls_train *t;
    ls_train_options o = tiny("keep");
    o.keep = 1;
    check_ok(ls_train_open(&t, &o));
    assert_int_equal(mkdir("keep/checkpoints", 0777), 0);
    write_text("keep/checkpoints/step-000000005.ckpt", "not a checkpoint");
    write_text("keep/checkpoints/step-000000001.ckpt", "nor is this one");
    steps(t, 2);
    check_ok(ls__checkpoint_wait(t));
    assert_false(exists("keep/checkpoints", 1)); /* older than the one that stays */
    for (int64_t step = 3; step <= 4; step++) {
        steps(t, 1);
        check_ok(ls__checkpoint_wait(t));
        assert_false(exists("keep/checkpoints", step - 1));
        assert_true(exists("keep/checkpoints", step));
        assert_true(exists("keep/checkpoints", 5));
    }
    steps(t, 2); /* step 5 takes the place of the corrupt one */
    check_ok(ls__checkpoint_wait(t));
    assert_true(exists("keep/checkpoints", 6));
    assert_false(exists("keep/checkpoints", 5));
    ls_train_free(&t);
}

static void weights_of_no_step_are_not_saved(void **state)
{
    (void)state;
    ls_train *t;
    ls_train_options o = tiny("torn");
    check_ok(ls_train_open(&t, &o));
    steps(t, 3);
    check_ok(ls_train_save(t));
    assert_int_equal(unlink("torn/model.safetensors"), 0);
    check_ok(ls__checkpoint_wait(t));
    assert_int_equal(unlink("torn/checkpoints/step-000000003.ckpt"), 0);
    /* As a rank leaves it that dies within the update of step 4. */
    atomic_store(&t->parallel.marks->begun, 4);
    check_fails(ls_train_save(t), LS_ESTATE, "step 4 was interrupted while weights were updated");
    check_fails(ls__checkpoint_save(t, true), LS_ESTATE, "step 4 was interrupted");
    /* Or one that finishes it, of which this rank does not know. */
    atomic_store(&t->parallel.marks->done, 4);
    check_fails(ls_train_save(t), LS_ESTATE, "step 4 was interrupted");
    assert_int_not_equal(access("torn/model.safetensors", F_OK), 0);
    assert_false(exists("torn/checkpoints", 3));
    ls_train_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_that_is_cut_while_it_is_read_is_an_error),
        cmocka_unit_test(all_files_of_a_folder_are_seen),
        cmocka_unit_test(corrupt_files_do_not_count_among_those_that_stay),
        cmocka_unit_test(weights_of_no_step_are_not_saved),
    };
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
