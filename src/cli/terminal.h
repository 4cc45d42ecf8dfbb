/* terminal - the local terminal while a remote one is shown in it. It is put back on every way out:
 * by terminal_restore, at exit, and when the program crashes. */
#pragma once

#include "base/base.h"

struct terminal_size {
	int columns, rows;
};

/* Keys as they are typed, nothing echoed, no signals made. */
int terminal_make_raw(int fd, struct err *e);
void terminal_restore(void); /* fine if it was never made raw */
/* Of the first of stdin, stdout and stderr that is a terminal; else 80 by 24. */
struct terminal_size terminal_size(void);
