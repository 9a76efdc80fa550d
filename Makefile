# Shortcuts for CMake. To start:
#
#   make demo      make setup, make, and a short demonstration
#   make test      installs what the tests need as well, builds, and runs all tests
#
#   make           configures and builds; installs nothing
#   make setup     installs the packages that building and the demo need (Debian; see scripts/setup)
#   make bench     benchmarks, compared with MPI and torch where installed
#   make lint      formatting, shell scripts, man pages, layers
#   make wheel     the Python package (python/README.md) as a wheel in dist/
#   make test-torch  installs it and torch into a separate folder, and runs the tests of the package
#   make install   PREFIX=/usr/local, DESTDIR=; default: the configured PREFIX
#   make clean
#
# SANITIZE=address,undefined or SANITIZE=thread builds in a separate folder; CC=clang picks the compiler.
SANITIZE ?=
PREFIX   ?= /usr/local
comma    := ,
flavour  := $(if $(SANITIZE),-$(subst $(comma),-,$(SANITIZE)))$(if $(filter clang,$(CC)),-clang)
BUILD    ?= build$(flavour)

all: $(BUILD)/build.ninja
	@cmake --build $(BUILD)

$(BUILD)/build.ninja:
	@cmake -S . -B $(BUILD) -G Ninja -DCMAKE_INSTALL_PREFIX="$$(realpath -ms "$(PREFIX)")" -DLOCKSTEP_SANITIZE=$(SANITIZE) \
	  $(if $(filter clang,$(CC)),-DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++) $(CMAKE_ARGS) || \
	  { echo "Configuring failed. 'make setup' installs what the build needs." >&2; exit 1; }

setup:
	@scripts/setup build

# setup comes first, also with -j, hence make within make.
demo: setup
	@$(MAKE) --no-print-directory all
	@scripts/demo $(BUILD)

# A folder that was configured before the test packages were there is configured again.
test:
	@scripts/setup test
	@$(MAKE) --no-print-directory $(BUILD)/build.ninja
	@grep -q '^LOCKSTEP_TESTS:[A-Z]*=ON$$' $(BUILD)/CMakeCache.txt || cmake -DLOCKSTEP_TESTS=ON $(BUILD)
	@cmake --build $(BUILD)
	@ctest --test-dir $(BUILD) --output-on-failure -j 3 $(CTEST_ARGS)

bench: all
	@bench/run $(BUILD)

lint:
	@scripts/setup test
	@scripts/lint

wheel:
	@scripts/setup build
	@scripts/wheel dist

test-torch:
	@scripts/test-torch $(TORCH)

install: all
	@DESTDIR="$(DESTDIR)" cmake --install "$(BUILD)" $(if $(filter file,$(origin PREFIX)),,--prefix "$$(realpath -ms "$(PREFIX)")")

clean:
	rm -rf build build-* dist

.PHONY: all setup demo test bench lint wheel test-torch install clean
