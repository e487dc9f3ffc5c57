/* GCC 12's _tile_loadconfig names only the first 8 of the 64 bytes that it reads, so that the rest of a configuration
   is optimised away and the products fault. Included before everything else when llama.cpp is built with that compiler.
 */
#ifndef OCTALANE_TILE_LOADCONFIG_H
#define OCTALANE_TILE_LOADCONFIG_H
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#include <immintrin.h>
#undef _tile_loadconfig
#define _tile_loadconfig(config) __asm__ volatile("ldtilecfg\t%X0" : : "m"(*(const char(*)[64])(config)))
#endif
#endif
