/* Marks what is linked with this file as made for newer CPUs than any x86-64, if it was compiled for them (-march): then the loader
 * refuses it on older ones ("CPU ISA level is lower than required"), a program as well as a shared library. Our own calls could not:
 * they may begin with the very instructions that are missing.
 *
 * A program that asks ls__cpu_lacks() before its main() defines ls__cpu_mark itself, and so gets no mark from the archive: its message can
 * say more. */
#include "kern/select.h"

const bool ls__cpu_mark = true;

/* The levels of the x86-64 ABI, as bits of GNU_PROPERTY_X86_ISA_1_NEEDED. */
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512CD__) && defined(__AVX512DQ__) && \
    defined(__AVX512VL__)
#define LEVEL "8"
#elif defined(__AVX2__) && defined(__BMI__) && defined(__BMI2__) && defined(__F16C__) && defined(__FMA__) && \
    defined(__LZCNT__) && defined(__MOVBE__)
#define LEVEL "4"
#elif defined(__x86_64__) && defined(__SSE4_2__) && defined(__POPCNT__)
#define LEVEL "2"
#endif
#ifdef LEVEL
__asm__(".pushsection .note.gnu.property, \"a\", @note\n"
        ".p2align 3\n"
        ".long 4, 16, 5\n" /* bytes of the name, bytes of the property, NT_GNU_PROPERTY_TYPE_0 */
        ".asciz \"GNU\"\n"
        ".long 0xc0008002, 4, " LEVEL ", 0\n"
        ".popsection");
#endif
