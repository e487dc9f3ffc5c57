"""Prefill and decode speed of octalane beside llama.cpp on one model file, in alternation.

Each repeat runs octalane and then llama.cpp, one after the other, so that a drifting machine touches both alike; the
ratio is taken within a repeat. llama.cpp is PyPI's llama-cpp-python, with the build it was installed with.

    python bench/peers/model_speed.py MODEL.gguf --octalane build/release/octalane --threads 2 --out docs/results/x.json
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time


def octalane(args, prompt, generate):
    command = [args.octalane, "bench", "model", "-m", args.model, "--prompt", str(prompt), "--generate", str(generate),
               "--threads", str(args.threads), "--repeats", "1", "--json", *args.octalane_flags.split()]
    report = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return report, {row["test"]: row["tokens_per_second"]["median"] for row in report["rows"]}


def llama_cpp(args, prompt, generate):
    """Runs in a process of its own, so that neither engine's threads spin beside the other's."""
    code = f"import llama_cpp_speed; llama_cpp_speed.main({args.model!r}, {args.threads}, {prompt}, {generate})"
    environment = dict(os.environ, PYTHONPATH=os.path.dirname(os.path.abspath(__file__)))
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=environment)
    return json.loads(run.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--octalane", default="build/release/octalane")
    parser.add_argument("--octalane-flags", default="", help="for example '--lane s8.group'")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--generate", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--out")
    args = parser.parse_args()

    pairs = []
    for repeat in range(args.repeats):
        report, ours = octalane(args, args.prompt, args.generate)
        theirs = llama_cpp(args, args.prompt, args.generate)
        pairs.append({"octalane": ours, "llama_cpp": theirs})
        print(f"repeat {repeat}: {pairs[-1]}", file=sys.stderr)
    words = [os.path.basename(word) if word == args.model else word for word in sys.argv]
    result = {"command": " ".join(words), "date": time.strftime("%Y-%m-%d"), "model": os.path.basename(args.model),
              "machine": report["machine"], "kernels": report["kernels"], "threads": args.threads, "pairs": pairs,
              "summary": {}}
    for test in pairs[0]["octalane"]:
        for engine in ("octalane", "llama_cpp"):
            samples = [pair[engine][test] for pair in pairs]
            result["summary"].setdefault(test, {})[engine] = {
                "min": min(samples), "median": statistics.median(samples), "max": max(samples)}
        result["summary"][test]["ratio"] = statistics.median(p["octalane"][test] / p["llama_cpp"][test] for p in pairs)
    import llama_cpp_speed
    result["llama_cpp"] = llama_cpp_speed.version()
    text = json.dumps(result, indent=1)
    if args.out:
        with open(args.out, "w") as file:
            file.write(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
