/* Recognizes files by their first bytes. Without this, a file of an unsupported format would be read as text, and a model would be
 * trained on the bytes of a Parquet file without any message. */
#include "data/recognize.h"

#include <string.h>
#include <unistd.h>
#include "base/file.h"
#include "base/status.h"
#include "data/names.h"
#include "data/format.h"

typedef struct mark {
    const char *name, *hint;
    const char *bytes;
    uint16_t count, offset;
    ls__kind kind;    /* 0: other */
    const char *lead; /* what the file must also begin with; NULL: nothing */
} mark;

#define MARK(text) .bytes = (text), .count = sizeof(text) - 1

static const char unpack_gz[] = "decompress it: gunzip FILE";
static const char unpack[] = "decompress it, or use gzip or zstd";
static const char archive[] = "extract its files and use those";
/* One command each, as it can be typed. */
#define TO_JSON(read)                                                  \
    "write it as JSON lines: python3 -c \"import pandas as p; p." read \
    "('FILE').to_json('FILE.jsonl', orient='records', lines=True)\""
static const char parquet[] = TO_JSON("read_parquet");
static const char feather[] = TO_JSON("read_feather");
static const char orc[] = TO_JSON("read_orc");
static const char stream[] = "write it as JSON lines: python3 -c \"import datasets as d; "
                             "d.Dataset.from_file('FILE').to_json('FILE.jsonl')\"";
static const char columns[] = "convert it to JSON lines, one object with a field \"text\" per line";
static const char arrays[] = "write the tokens as uint16 or uint32: array.astype('uint16').tofile('tokens.bin')";
static const char pickle[] = "pickles can run code and are not read; write text or tokens instead";
static const char model[] = "it is a model, not training data";
static const char utf8[] = "convert it: iconv -f UTF-16 -t UTF-8 FILE";

static const mark marks[] = {
    { "gzip-compressed", unpack_gz, MARK("\x1f\x8b\x08"), .kind = LS__KIND_GZIP },
    { "zstd-compressed", "decompress it: zstd -d FILE", MARK("\x28\xb5\x2f\xfd"), .kind = LS__KIND_ZSTD },
    { "xz-compressed", unpack,
      MARK("\xfd"
           "7zXZ\0") },
    { "bzip2-compressed", unpack, MARK("1AY&SY"), .offset = 4, .lead = "BZh" },
    { "bzip2-compressed", unpack, MARK("\x17rE8P\x90"), .offset = 4, .lead = "BZh" },
    { "lz4-compressed", unpack, MARK("\x04\x22\x4d\x18") },
    { "lzip-compressed", unpack, MARK("LZIP\1") },
    { "snappy-compressed", unpack, MARK("\xff\6\0\0sNaPpY") },
    { "a ZIP archive", archive, MARK("PK\3\4") },
    { "a ZIP archive", archive, MARK("PK\5\6") },
    { "a 7-Zip archive", archive, MARK("7z\xbc\xaf\x27\x1c") },
    { "a RAR archive", archive, MARK("Rar!\x1a\7") },
    { "a tar archive", archive, MARK("ustar"), .offset = 257 },
    { "a Parquet file", parquet, MARK("PAR1") },
    { "an encrypted Parquet file", parquet, MARK("PARE") },
    { "an Arrow file", feather, MARK("ARROW1\0\0") },
    { "a Feather file", feather, MARK("FEA1") },
    { "an ORC file", orc, MARK("ORC\n") },
    { "an ORC file", orc, MARK("ORC\b") },
    { "an Avro file", columns, MARK("Obj\1") },
    { "a NumPy array", arrays, MARK("\x93NUMPY") },
    { "an HDF5 file", columns, MARK("\x89HDF\r\n\x1a\n") },
    { "an SQLite database", columns, MARK("SQLite format 3\0") },
    { "an LMDB database", columns, MARK("\xde\xc0\xef\xbe"), .offset = 16 },
    { "a Megatron index", "use the .bin next to it, with the format u16 or u32", MARK("MMIDIDX\0\0") },
    { "a Python pickle", pickle, MARK("(dp0\n") },
    { "a Python pickle", pickle, MARK("(lp0\n") },
    { "a Python pickle", pickle, MARK("ccopy_reg\n") },
    { "a GGUF model", model, MARK("GGUF") },
    { "an ELF program", NULL,
      MARK("\x7f"
           "ELF") },
    { "a PNG picture", NULL, MARK("\x89PNG\r\n\x1a\n") },
    { "a JPEG picture", NULL, MARK("\xff\xd8\xff") },
    { "a GIF picture", NULL, MARK("GIF87a") },
    { "a GIF picture", NULL, MARK("GIF89a") },
    { "a TIFF picture", NULL, MARK("II*\0") },
    { "a TIFF picture", NULL, MARK("MM\0*") },
    { "a RIFF file (WAV, AVI, WebP)", NULL, MARK("WAVE"), .offset = 8, .lead = "RIFF" },
    { "a RIFF file (WAV, AVI, WebP)", NULL, MARK("AVI "), .offset = 8, .lead = "RIFF" },
    { "a RIFF file (WAV, AVI, WebP)", NULL, MARK("WEBP"), .offset = 8, .lead = "RIFF" },
    { "an Ogg file", NULL, MARK("OggS\0") },
    { "a FLAC file", NULL, MARK("fLaC\0") },
    { "an MP3 file", NULL, MARK("ID3\3") },
    { "an MP3 file", NULL, MARK("ID3\4") },
    { "an MP4 file", NULL, MARK("ftyp"), .offset = 4 },
    { "a PDF file", "extract its text: pdftotext FILE", MARK("%PDF-") },
    { "an Office file", "save it as text", MARK("\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1") },
    { "UTF-32-encoded", "convert it: iconv -f UTF-32 -t UTF-8 FILE", MARK("\xff\xfe\0\0") },
    { "UTF-32-encoded", "convert it: iconv -f UTF-32 -t UTF-8 FILE", MARK("\0\0\xfe\xff") },
    { "UTF-16-encoded", utf8, MARK("\xff\xfe") },
    { "UTF-16-encoded", utf8, MARK("\xfe\xff") },
};

static uint32_t word_at(const uint8_t *p)
{
    uint32_t word;
    memcpy(&word, p, sizeof word);
    return word;
}

/* llm.c's files all begin with a number of theirs. */
static bool find_llmc(const uint8_t *head, size_t count, ls__recognized *out)
{
    static const char convert[] = "it is not training data";
    static const struct {
        uint32_t magic;
        const char *name;
    } files[] = { { 20240522, "an evaluation file of llm.c (HellaSwag, MMLU)" },
                  { 20240326, "a model of llm.c" },
                  { 20240327, "a debug state of llm.c" },
                  { 20240328, "a tokenizer of llm.c" } };
    uint32_t magic = count >= 4 ? word_at(head) : 0;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (magic == files[i].magic) *out = (ls__recognized){ LS__KIND_OTHER, files[i].name, convert, false };
    if (ls__format_by_head(head, count) != LS_FORMAT_AUTO)
        *out = (ls__recognized){ LS__KIND_SHARD, "a token shard", NULL, false };
    return out->kind != LS__KIND_UNKNOWN;
}

/* Formats that do not begin with fixed bytes. */
static bool find_loose(const uint8_t *head, size_t count, uint64_t bytes, ls__recognized *out)
{
    uint64_t length = 0;
    if (count < 10) return false;
    memcpy(&length, head, sizeof length);
    if (head[8] == '{' && (head[9] == '"' || head[9] == '}' || head[9] == ' ') && length >= 2 && length < 100u << 20 &&
        length <= bytes - 8)
        *out = (ls__recognized){ LS__KIND_OTHER, "a safetensors file", model, false };
    else if (word_at(head) == UINT32_MAX && word_at(head + 4) % 8 == 0 && word_at(head + 4) &&
             word_at(head + 4) < 1 << 28)
        *out = (ls__recognized){ LS__KIND_OTHER, "an Arrow stream", stream, false };
    else if ((word_at(head) & 0xfffffff0) == 0x184d2a50)
        *out = (ls__recognized){ LS__KIND_ZSTD, "zstd-compressed", "decompress it: zstd -d FILE", false };
    else if (head[0] == 0x80 && head[1] >= 2 && head[1] <= 5 && memchr("\x95}](cXqKJM\x8c\x8a", head[2], 12))
        *out = (ls__recognized){ LS__KIND_OTHER, "a Python pickle", pickle, true };
    return out->kind != LS__KIND_UNKNOWN;
}

/* ZIP archives that are arrays, by the name of their first file. */
static bool find_zip(const uint8_t *head, size_t count, ls__recognized *out)
{
    enum { NAME_LENGTH = 26, NAME = 30 };
    if (count < NAME || memcmp(head, "PK\3\4", 4) != 0) return false;
    size_t n = head[NAME_LENGTH] | (size_t)head[NAME_LENGTH + 1] << 8;
    if (n > count - NAME) return false;
    const char *name = (const char *)head + NAME;
    if (n > 4 && !memcmp(name + n - 4, ".npy", 4))
        *out = (ls__recognized){ LS__KIND_OTHER, "a NumPy archive (.npz)", arrays, false };
    else if (n > 8 && !memcmp(name + n - 8, "data.pkl", 8))
        *out = (ls__recognized){ LS__KIND_OTHER, "a file of torch.save() (.pt)", arrays, false };
    return out->kind != LS__KIND_UNKNOWN;
}

ls__recognized ls__recognize(const uint8_t *head, size_t count, uint64_t bytes)
{
    ls__recognized out = { 0 };
    if (find_llmc(head, count, &out) || find_zip(head, count, &out)) return out;
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        const mark *m = &marks[i];
        if (count < (size_t)m->offset + m->count || memcmp(head + m->offset, m->bytes, m->count)) continue;
        if (m->lead && memcmp(head, m->lead, strlen(m->lead))) continue;
        return (ls__recognized){ m->kind ? m->kind : LS__KIND_OTHER, m->name, m->hint, m->count < 3 };
    }
    find_loose(head, count, bytes, &out);
    return out;
}

ls_status ls__source_head(const ls__source *file, uint8_t head[LS__HEAD], size_t *count)
{
    *count = file->bytes < LS__HEAD ? file->bytes : LS__HEAD;
    return ls__source_read(file, head, *count, 0);
}

ls_status ls__recognized_fail(const ls__source *file, const ls__recognized *r, const char *wanted)
{
    return ls__fail(LS_EFORMAT, "%s: byte 0: is %s, not %s%s%s", file->path, r->name, wanted, r->hint ? "; " : "",
                    r->hint ? r->hint : "");
}

static ls_status is_text(const char *path, bool *text)
{
    uint8_t head[LS__HEAD];
    size_t bytes, count;
    int fd;
    ls_data_format by_name = ls__suffix_of(path).format;
    *text = by_name == LS_FORMAT_AUTO || ls__format_of(by_name)->is_text;
    if (!*text) return LS_OK;
    ls_status status = ls__file_open(path, &fd, &bytes);
    if (status) return status;
    const ls__source file = { .path = (char *)(uintptr_t)path, .fd = fd, .bytes = bytes };
    status = ls__source_head(&file, head, &count);
    if (!status) *text = ls__recognize(head, count, bytes).kind != LS__KIND_SHARD;
    close(fd);
    return status;
}

ls_status ls__sources_are_text(const char *const *paths, size_t n_paths, bool *text)
{
    ls__names names;
    ls_status status = ls__names_find(&names, paths, n_paths);
    *text = true;
    for (size_t i = 0; !status && i < names.count; i++) {
        bool this_one = true;
        status = is_text(names.items[i], &this_one);
        if (!status && i && this_one != *text)
            status = ls__fail(LS_EINVAL, "%s is %s, but %s is %s; use files of one kind", names.items[i],
                              this_one ? "text" : "a token shard", names.items[0], *text ? "text" : "a token shard");
        *text = this_one;
    }
    ls__names_free(&names);
    return status;
}
