/* Forced into every file by the build. Each name here has cost somebody a bug; the message says
 * what to use instead. System headers come first, so that their own declarations stay legal. */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#pragma GCC poison strcpy strcat strncpy strncat stpcpy /* buf_*, snprintf, memcpy */
#pragma GCC poison sprintf vsprintf gets                /* snprintf, buf_printf */
#pragma GCC poison strtok                               /* str_split */
#pragma GCC poison atoi atol atoll                      /* str_to_int */
#pragma GCC poison system popen                         /* posix_spawn with an argv */
#pragma GCC poison mktemp tmpnam tempnam                /* mkstemp, O_TMPFILE, memfd_create */
