/* PNG and JPEG files in memory to pixels, with libpng and libjpeg-turbo. Either may be missing from a build; its files are
 * then refused by name. */
#include "data/images.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#ifdef LOCKSTEP_JPEG
#include <jpeglib.h>
#endif
#ifdef LOCKSTEP_PNG
#include <png.h>
#endif

enum { MOST_SIDE = 1 << 15 };
static const uint64_t MOST_PIXELS = (uint64_t)1 << 27; /* 384 MiB of RGB */

/* Memory for a picture, unless the file claims one that is too large. */
static __attribute__((unused)) ls_status make_picture(const char *name, uint64_t width, uint64_t height,
                                                      ls__picture *out)
{
    if (!width || !height || width > MOST_SIDE || height > MOST_SIDE || width * height > MOST_PIXELS)
        return ls__fail(LS_EFORMAT,
                        "%s: a picture of %llu x %llu pixels; at most %d x %d and %llu million are supported", name,
                        (unsigned long long)width, (unsigned long long)height, MOST_SIDE, MOST_SIDE,
                        (unsigned long long)(MOST_PIXELS >> 20));
    out->width = (int)width;
    out->height = (int)height;
    out->pixels = calloc((size_t)(3 * width), (size_t)height);
    return out->pixels ? LS_OK : ls__fail(LS_ENOMEM, "%s: no memory for %d x %d pixels", name, out->width, out->height);
}

#ifdef LOCKSTEP_PNG
/* 16 bits become 8, and palettes and grey become RGB. Opacity is dropped and not blended with anything, as by torchvision's
 * folders of pictures (Pillow's convert("RGB")). */
static ls_status decode_png(const char *name, const uint8_t *data, size_t bytes, ls__picture *out)
{
    png_image image = { .version = PNG_IMAGE_VERSION };
    ls_status status = LS_OK;
    if (!png_image_begin_read_from_memory(&image, data, bytes))
        return ls__fail(LS_EFORMAT, "%s: not a valid PNG file: %s", name, image.message);
    bool opacity = image.format & PNG_FORMAT_FLAG_ALPHA;
    uint8_t *four = NULL;
    image.flags |= PNG_IMAGE_FLAG_16BIT_sRGB; /* otherwise 16 bits are taken for linear light */
    image.format = opacity ? PNG_FORMAT_RGBA : PNG_FORMAT_RGB;
    status = make_picture(name, image.width, image.height, out);
    size_t pixels = (size_t)out->width * (size_t)out->height;
    if (!status && opacity && !(four = malloc(4 * pixels)))
        status = ls__fail(LS_ENOMEM, "%s: no memory for %d x %d pixels", name, out->width, out->height);
    if (!status && !png_image_finish_read(&image, NULL, four ? four : out->pixels, 0, NULL))
        status = ls__fail(LS_EFORMAT, "%s: not a valid PNG file: %s", name, image.message);
    for (size_t i = 0; i < pixels && four && !status; i++) memcpy(out->pixels + 3 * i, four + 4 * i, 3);
    free(four);
    png_image_free(&image);
    return status;
}
#endif

#ifdef LOCKSTEP_JPEG
/* libjpeg calls back on errors and expects not to get back. */
typedef struct failure {
    struct jpeg_error_mgr manager; /* first: libjpeg knows its address */
    jmp_buf where;
    char message[JMSG_LENGTH_MAX];
} failure;

static void on_failure(j_common_ptr info)
{
    failure *f = (failure *)info->err;
    info->err->format_message(info, f->message);
    longjmp(f->where, 1);
}

/* A warning means corrupt or missing data, which libjpeg would fill with grey. */
static void on_warning(j_common_ptr info, int level)
{
    if (level < 0) on_failure(info);
}

/* Programs store CMYK inverted, as Adobe's does. The same numbers as Pillow's. */
static void cmyk_to_rgb(uint8_t *rgb, const uint8_t *cmyk, int width)
{
    for (int x = 0; x < width; x++)
        for (int c = 0; c < 3; c++) {
            int black = cmyk[4 * x + 3], product = (255 - cmyk[4 * x + c]) * black + 128;
            rgb[3 * x + c] = (uint8_t)(black - ((product + (product >> 8)) >> 8)); /* product / 255, rounded */
        }
}

static ls_status decode_jpeg(const char *name, const uint8_t *data, size_t bytes, int size, ls__picture *out)
{
    struct jpeg_decompress_struct info;
    failure f;
    volatile ls_status status = LS_OK;
    info.err = jpeg_std_error(&f.manager);
    f.manager.error_exit = on_failure;
    f.manager.emit_message = on_warning;
    jpeg_create_decompress(&info);
    if (setjmp(f.where)) {
        jpeg_destroy_decompress(&info);
        return ls__fail(LS_EFORMAT, "%s: not a valid JPEG file: %s", name, f.message);
    }
    jpeg_mem_src(&info, data, (unsigned long)bytes);
    jpeg_read_header(&info, TRUE);
    unsigned shorter = info.image_width < info.image_height ? info.image_width : info.image_height;
    info.scale_num = info.scale_denom = 1;
    while (info.scale_denom < 8 && shorter / (2 * info.scale_denom) >= (unsigned)size) info.scale_denom *= 2;
    bool cmyk = info.num_components == 4;
    info.out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
    info.dct_method = JDCT_ISLOW; /* the same bits from every version of the library */
    jpeg_calc_output_dimensions(&info);
    status = make_picture(name, info.output_width, info.output_height, out);
    if (!status) {
        JSAMPARRAY four =
            cmyk ? info.mem->alloc_sarray((j_common_ptr)&info, JPOOL_IMAGE, 4 * info.output_width, 1) : NULL;
        jpeg_start_decompress(&info);
        while (info.output_scanline < info.output_height) {
            JSAMPROW row = out->pixels + (size_t)info.output_scanline * (size_t)out->width * 3;
            jpeg_read_scanlines(&info, cmyk ? four : &row, 1);
            if (cmyk) cmyk_to_rgb(row, four[0], out->width);
        }
        jpeg_finish_decompress(&info);
    }
    jpeg_destroy_decompress(&info);
    return status;
}
#endif

ls_status ls__picture_decode(const char *name, const uint8_t *data, size_t bytes, int size, ls__picture *out)
{
    static const uint8_t png[8] = { 0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n' };
    ls_status status;
    *out = (ls__picture){ 0 };
    (void)size;
    if (bytes >= sizeof png && memcmp(data, png, sizeof png) == 0) {
#ifdef LOCKSTEP_PNG
        status = decode_png(name, data, bytes, out);
#else
        status =
            ls__fail(LS_EUNSUPPORTED, "%s: this lockstep was built without libpng; install it and build again", name);
#endif
    } else if (bytes >= 3 && data[0] == 0xff && data[1] == 0xd8 && data[2] == 0xff) {
#ifdef LOCKSTEP_JPEG
        status = decode_jpeg(name, data, bytes, size, out);
#else
        status =
            ls__fail(LS_EUNSUPPORTED, "%s: this lockstep was built without libjpeg; install it and build again", name);
#endif
    } else {
        status = ls__fail(LS_EFORMAT, "%s: byte 0: neither a PNG nor a JPEG file", name);
    }
    if (status) {
        free(out->pixels);
        out->pixels = NULL;
    }
    return status;
}
