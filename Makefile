# A short front for CMake. The first two are all that a newcomer needs:
#
#   make demo      installs what is missing, builds, and shows what lockstep does
#   make test      the same, and runs all tests
#
#   make           builds
#   make bench     measures, beside the peers that are installed
#   make lint      formatting, shell scripts, man pages, layers
#   make install   PREFIX=/usr/local, DESTDIR=; a PREFIX given here counts, else the one that was configured
#   make clean
#
# SANITIZE=address,undefined or SANITIZE=thread builds in a folder of its own; CC=clang picks the compiler.
SANITIZE ?=
PREFIX   ?= /usr/local
comma    := ,
flavour  := $(if $(SANITIZE),-$(subst $(comma),-,$(SANITIZE)))$(if $(filter clang,$(CC)),-clang)
BUILD    ?= build$(flavour)

all: $(BUILD)/build.ninja
	@cmake --build $(BUILD)

$(BUILD)/build.ninja: | setup
	@cmake -S . -B $(BUILD) -G Ninja -DCMAKE_INSTALL_PREFIX="$$(realpath -ms "$(PREFIX)")" -DLOCKSTEP_SANITIZE=$(SANITIZE) \
	  $(if $(filter clang,$(CC)),-DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++) $(CMAKE_ARGS)

setup:
	@scripts/setup

demo: all
	@scripts/demo $(BUILD)

test: all
	@ctest --test-dir $(BUILD) --output-on-failure -j 2 $(CTEST_ARGS)

bench: all
	@bench/run $(BUILD)

lint: setup
	@scripts/lint

install: all
	@DESTDIR="$(DESTDIR)" cmake --install "$(BUILD)" $(if $(filter file,$(origin PREFIX)),,--prefix "$$(realpath -ms "$(PREFIX)")")

clean:
	rm -rf build build-*

.PHONY: all setup demo test bench lint install clean
