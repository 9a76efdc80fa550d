/* A program that uses what the CPU has that it is compiled for, in main(). */
#include <stdio.h>
#include <stdlib.h>
#ifdef FROM_LIBRARY
#include "kern/select.h"
#endif

int main(int argc, char **argv)
{
    float x[64];
    for (int i = 0; i < 64; i++) x[i] = (float)(argc + i);
    for (int i = 0; i < 64; i++) x[i] = x[i] * x[63 - i] + 1.0f;
    printf("%g\n", (double)x[argc > 1 ? atoi(argv[1]) : 0]);
#ifdef FROM_LIBRARY
    return !ls__cpu_mark;
#else
    return 0;
#endif
}
