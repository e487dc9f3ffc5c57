# The two commands: `make run` and `make test`. Everything else is CMake; see CONTRIBUTING.md.
PROMPT ?= The three primary colours are
COUNT ?= 48

.PHONY: run test bench bench-additive build format format-check clean

run: build
	@model=$$(scripts/fetch_model.sh) && build/release/octalane run -m "$$model" -p "$(PROMPT)" -n $(COUNT)

build:
	@scripts/bootstrap.sh run
	@cmake --preset release --log-level=WARNING
	@cmake --build --preset release --target octalane_cli

test:
	@scripts/bootstrap.sh test
	@scripts/test.sh

bench: build
	build/release/octalane bench gemm --format q4_0 --rows 1536 --cols 576 --tokens 1,8,512
	@model=$$(scripts/fetch_model.sh) && build/release/octalane bench model -m "$$model"

bench-additive: build
	@cmake --build --preset release --target additive_bench
	build/release/bench/additive/additive_bench --out build/additive_bench.json $(ARGS)

format format-check:
	@scripts/bootstrap.sh test
	@scripts/format.sh $@

clean:
	rm -rf build
