/* The process that a user namespace needs to begin with. */
#pragma once

/* Stands still until the other end of `fd` is closed, by whoever needs it or by that one's death.
 */
_Noreturn void userns_child_main(int fd);
