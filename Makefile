# A short front for meson and ninja. `make run` on a bare Debian 12 is all it takes; everything that a
# target needs from Debian is installed first, and nothing is said when nothing is missing.
DATA ?= atoll-data
LISTEN ?= 127.0.0.1:3000
PREFIX ?= /usr/local
FUZZ_SECONDS ?= 60
ASAN := CC=clang meson setup -Db_sanitize=address,undefined -Db_lundef=false
FUZZ := CC=clang meson setup -Db_sanitize=address,undefined -Db_lundef=false -Dfuzz=true
SOURCES = $(shell find src tests bench -name '*.[ch]')

.DEFAULT_GOAL := build
.PHONY: build run base-template test attack soak bench fuzz format check install clean release asan

build:
	@tools/install-packages build
	@[ -f build/build.ninja ] || meson setup build
	@ninja $(NINJA_FLAGS) -C build atoll atoll-warden atoll-guest atoll-probe

# Everything of that build: the unit tests and the programs that measure.
release: build
	@ninja -C build

# The base template takes as long as everything else, so it is made meanwhile; its parents are made here because the
# server must pass through the one and nobody else through the other.
run:
	@tools/install-packages run
	@$(MAKE) --no-print-directory -j2 NINJA_FLAGS=--quiet build base-template
	@build/atoll serve --data $(DATA) --listen $(LISTEN)

base-template:
	@[ "$$(id -u)" != 0 ] || [ -e $(DATA)/templates/base ] || { mkdir -m 0711 -p $(DATA) && \
		mkdir -m 0750 -p $(DATA)/templates && TERM=dumb templates/base/build $(DATA)/templates/base; }

# The same programs with the sanitizers in them, for the tests.
asan:
	@tools/install-packages build test
	@[ -f build-asan/build.ninja ] || $(ASAN) build-asan
	@ninja -C build-asan

test: release asan
	@tools/install-packages run
	@tests/run

# An hour's worth of use in one go; SOAK="--minutes 5 --clients 8" makes it shorter.
soak: build
	@tools/install-packages run test
	@tests/soak $(SOAK)

# Tries to get out of sandboxes of the server that this shell would speak to, or of one of its own.
CACHE = $(or $(ATOLL_TEMPLATE_CACHE),build/template-cache)
attack: release
	@tools/install-packages run
	@templates/base/build $(CACHE)/base
	@build/atoll doctor --attack --template-cache $(CACHE)

bench: release
	@tools/install-packages run test bench
	@bench/run

fuzz:
	@tools/install-packages build fuzz
	@[ -f build-fuzz/build.ninja ] || $(FUZZ) build-fuzz
	@ninja -C build-fuzz
	@tests/fuzz $(FUZZ_SECONDS)

format:
	@tools/install-packages check
	@clang-format -i $(SOURCES)

check: asan
	@tools/install-packages check
	@tools/check-rooms
	@clang-format --dry-run --Werror $(SOURCES)
	@tools/lint build-asan

install: release
	@meson configure build -Dprefix=$(PREFIX)
	@meson install -C build $(if $(DESTDIR),--destdir $(DESTDIR))

clean:
	@rm -rf build build-asan build-fuzz
