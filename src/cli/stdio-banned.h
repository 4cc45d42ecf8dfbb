/* Forced into every file of this room by the build: what people read goes through out.h, where
 * text from outside is cleaned. */
#pragma once

#include <stdio.h>

#undef stdout
#undef stderr
#pragma GCC poison stdout stderr vprintf dprintf puts putchar perror
#define printf(...) printf_is_banned__use_out_line() /* as an attribute it must stay legal */
