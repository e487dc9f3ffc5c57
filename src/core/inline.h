// Everything that an ISA translation unit includes is forced inline: an out-of-line copy compiled for AVX2 could
// otherwise be the one the linker keeps for a machine without it.
#pragma once

#define OCTALANE_INLINE [[gnu::always_inline]] inline
