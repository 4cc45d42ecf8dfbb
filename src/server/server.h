/* server - `atoll serve`: configuration, start, wiring, stop.
 * Owns:   the process: its flags, its data directory, its privileges, its signals.
 * Uses:   every room below.
 * Never:  stays root: it prepares the data directory, executes the warden, then gives root up
 * before a byte from outside is read. */
#pragma once

/* argv[0] is "serve". Returns the exit code. */
int server_main(int argc, char **argv);
