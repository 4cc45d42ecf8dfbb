/* server - `atoll serve`: configuration, start, wiring, stop.
 * Owns:   the process: its flags, its data directory, its privileges, its signals.
 * Uses:   every room below.
 * Never:  stays root: it prepares the data directory, executes the warden, then gives root up
 * before a byte from outside is read. */
#pragma once

/* argv[0] is "serve". Returns the exit code. */
int server_main(int argc, char **argv);

/* What `atoll serve` can be told, once for all who must know: flags, ATOLL_ variables and the
 * --config file are read by these rows, and help, completions and manual page are made of them.
 * ROW(name in the file, flag, kind as in json.h, least, most, what its value is called, help); of a
 * string, least and most are its length. FLAG(flag, value, help) is on the command line alone. */
#define SERVER_OPTIONS(ROW, FLAG)                                                                 \
	ROW(admin_token_file, "admin-token-file", STR, 0, 4096, "FILE",                           \
		"holds the operator's token: opens /nodes and /admin")                            \
	FLAG("config", "FILE", "TOML with the same names, _ for -")                               \
	ROW(data, "data", STR, 0, 4096, "DIR", "where everything is kept (default: atoll-data)")  \
	ROW(disk_mb, "disk-mb", INT, 64, 1 << 24, "N",                                            \
		"disk of sandboxes prepared ahead (default: 10240)")                              \
	ROW(dns_server, "dns-server", STR, 0, 256, "ADDRESS[:PORT],...",                          \
		"asked for sandboxes' names (default: as /etc/resolv.conf)")                      \
	ROW(domain, "domain", STR, 0, 253, "NAME",                                                \
		"behind PORT-ID. in sandbox addresses (default: localhost:PORT)")                 \
	ROW(listen, "listen", STR, 0, 256, "HOST:PORT",                                           \
		"the one port; 0 picks one (default: 127.0.0.1:3000)")                            \
	ROW(log_level, "log-level", STR, 0, 16, "LEVEL",                                          \
		"error, warn, info or debug (default: info)")                                     \
	ROW(max_sandboxes, "max-sandboxes", INT, 1, 4000, "N", "running at once (default: 1000)") \
	ROW(max_timeout, "max-timeout", INT, 1, 31536000, "SECONDS",                              \
		"a sandbox may live (default: 86400)")                                            \
	ROW(network, "network", STR, 0, 64, "CIDR|none",                                          \
		"addresses of sandboxes (default: 10.199.0.0/16)")                                \
	ROW(no_restart, "no-restart", BOOL, 0, 0, NULL,                                           \
		"after a crash stay down (default: start again; sandboxes live on)")              \
	ROW(pool, "pool", INT, 0, 1024, "N", "sandboxes prepared ahead (default: 16)")            \
	ROW(stop_sandboxes, "stop-sandboxes", BOOL, 0, 0, NULL,                                   \
		"end all sandboxes when the server stops")                                        \
	ROW(template_cache, "template-cache", STR, 0, 4096, "DIR",                                \
		"share templates between data directories")                                       \
	ROW(tls_cert, "tls-cert", STR, 0, 4096, "FILE",                                           \
		"serve https: certificate and chain, PEM; SIGHUP rereads")                        \
	ROW(tls_key, "tls-key", STR, 0, 4096, "FILE",                                             \
		"its private key, PEM; only root need be able to read it")
