/* The splitter: the same words as GPT-2's regular expression, run by PCRE2, gives. */
#include "check.h"
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include "base/random.h"
#include "data/split.h"

/* \s is written out: PCRE2 counts U+180E as white space, the reference does not. */
#define SPACES "\\x09-\\x0d\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
static const char pattern[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" SPACES "\\p{L}\\p{N}]+|[" SPACES
                              "]+(?![^" SPACES "])|[" SPACES "]+";

static pcre2_code *compile(const char *text)
{
    int error;
    PCRE2_SIZE at;
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &error, &at, NULL);
    if (!code) fail_msg("the expression does not compile: error %d at %zu", error, at);
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
    return code;
}

static size_t put_utf8(uint32_t c, char *out)
{
    if (c < 0x80) return out[0] = (char)c, 1;
    if (c < 0x800) return out[0] = (char)(0xc0 | c >> 6), out[1] = (char)(0x80 | (c & 63)), 2;
    if (c < 0x10000) {
        out[0] = (char)(0xe0 | c >> 12), out[1] = (char)(0x80 | (c >> 6 & 63)), out[2] = (char)(0x80 | (c & 63));
        return 3;
    }
    out[0] = (char)(0xf0 | c >> 18), out[1] = (char)(0x80 | (c >> 12 & 63));
    out[2] = (char)(0x80 | (c >> 6 & 63)), out[3] = (char)(0x80 | (c & 63));
    return 4;
}

static uint8_t agreed[0x110000]; /* both see the same class */

/* PCRE2's edition of Unicode may be older than ours: what it does not know is neither letter nor number to it. */
static void classes_are_those_of_pcre2_except_for_newer_characters(void **state)
{
    (void)state;
    pcre2_code *letters = compile("\\p{L}"), *numbers = compile("\\p{N}"), *spaces = compile("[" SPACES "]"),
               *unassigned = compile("\\p{Cn}");
    pcre2_match_data *m = pcre2_match_data_create(1, NULL);
    size_t newer = 0;
    for (uint32_t c = 0; c < 0x110000; c++) {
        if (c >= 0xd800 && c < 0xe000) continue;
        char text[4];
        size_t n = put_utf8(c, text), bytes;
        PCRE2_SPTR s = (PCRE2_SPTR)text;
        int class = pcre2_match(letters, s, n, 0, 0, m, NULL) > 0   ? LS__LETTER
                    : pcre2_match(numbers, s, n, 0, 0, m, NULL) > 0 ? LS__NUMBER
                    : pcre2_match(spaces, s, n, 0, 0, m, NULL) > 0  ? LS__SPACE
                                                                    : LS__OTHER;
        int ours = (int)ls__char_at((uint8_t *)text, (uint8_t *)text + n, &bytes);
        assert_int_equal(bytes, n);
        agreed[c] = ours == class;
        if (agreed[c]) continue;
        if (pcre2_match(unassigned, s, n, 0, 0, m, NULL) < 0)
            fail_msg("U+%04X: class %d, PCRE2 says %d", c, ours, class);
        newer++;
    }
    print_message("%zu characters are newer than PCRE2's Unicode\n", newer);
    pcre2_match_data_free(m);
    pcre2_code_free(letters);
    pcre2_code_free(numbers);
    pcre2_code_free(spaces);
    pcre2_code_free(unassigned);
}

/* Random text: mostly what matters to the expression, now and then any character. */
static size_t random_text(char *out, size_t room, uint64_t stream)
{
    static const char *const parts[] = { " ",
                                         "  ",
                                         "\n",
                                         "\t",
                                         "'",
                                         "'s",
                                         "'ll",
                                         "'re",
                                         "'LL",
                                         "a",
                                         "Zb",
                                         "7",
                                         "42",
                                         "-",
                                         "!?",
                                         "\xc3\xa9",
                                         "\xe4\xb8\xad",
                                         "\xc2\xa0",
                                         "\xe3\x80\x80",
                                         "\xf0\x9f\x98\x80",
                                         "\xcc\x81",
                                         "\xd9\xa3",
                                         "\xe2\x80\x8b",
                                         "\r\n",
                                         "\xe1\xa0\x8e" };
    size_t n = 0;
    for (uint64_t i = 0; n + 8 < room; i++) {
        uint32_t r = ls__random_u32(7, stream, i);
        if (r % 16) {
            const char *part = parts[(r >> 4) % (sizeof parts / sizeof *parts)];
            memcpy(out + n, part, strlen(part));
            n += strlen(part);
        } else {
            uint32_t c = (r >> 4) % 0x110000;
            if (agreed[c] && (c < 0xd800 || c >= 0xe000)) n += put_utf8(c, out + n);
        }
    }
    return n;
}

static void pieces_are_those_of_the_expression(void **state)
{
    (void)state;
    pcre2_code *code = compile(pattern);
    pcre2_match_data *m = pcre2_match_data_create(1, NULL);
    enum { ROOM = 4000 };
    for (uint64_t text = 0; text < 1000; text++) {
        char s[ROOM];
        size_t n = random_text(s, text % 2 ? ROOM : 10 + text % 40, text);
        for (size_t at = 0; at < n;) {
            if (pcre2_match(code, (PCRE2_SPTR)s, n, at, PCRE2_NO_UTF_CHECK, m, NULL) < 0)
                fail_msg("no match at %zu", at);
            PCRE2_SIZE *found = pcre2_get_ovector_pointer(m);
            size_t word = ls__split((uint8_t *)s + at, (uint8_t *)s + n);
            if (found[0] != at || found[1] != at + word)
                fail_msg("text %zu, byte %zu: %zu bytes, the expression finds %zu at %zu: '%.*s'", text, at, word,
                         found[1] - found[0], found[0], 20, s + at);
            at += word;
        }
    }
    pcre2_match_data_free(m);
    pcre2_code_free(code);
}

/* Random bytes, mostly invalid: words cover the text, and cutting it at any allowed place changes no word. */
static void cuts_change_no_piece(void **state)
{
    (void)state;
    for (uint64_t text = 0; text < 3000; text++) {
        uint8_t s[120];
        size_t n;
        if (text % 2) {
            n = random_text((char *)s, sizeof s, 5000 + text);
        } else {
            n = sizeof s;
            static const uint8_t some[] = { ' ',  '\n', 'a',  '\'', 's',  0xe3, 0x80,
                                            0xc2, 0xa0, 0x85, 0xf0, 0x9f, 0xff, '1' };
            for (size_t i = 0; i < n; i++) s[i] = some[ls__random_u32(9, text, i) % sizeof some];
        }
        uint8_t ends[sizeof s + 1] = { 0 };
        for (size_t at = 0; at < n;) ends[at += ls__split(s + at, s + n)] = 1;
        assert_int_equal(ends[n], 1);
        for (size_t cut = 0; (cut = ls__split_cut(s, cut + 1, n)) < n;) {
            size_t at = 0, word;
            for (; at < cut; at += word) {
                word = ls__split(s + at, s + cut);
                if (!ends[at + word]) fail_msg("text %zu cut at %zu: another word at %zu", text, cut, at);
            }
            if (!ends[cut]) fail_msg("text %zu: a cut inside a word at %zu", text, cut);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(classes_are_those_of_pcre2_except_for_newer_characters),
        cmocka_unit_test(pieces_are_those_of_the_expression),
        cmocka_unit_test(cuts_change_no_piece),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
