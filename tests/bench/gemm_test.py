"""bench/peers/gemm.py on products of octalane alone: the receipt is whole, and what goes wrong is told."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

BUILD = os.environ["OCTALANE_BUILD"]
PEERS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bench", "peers")
sys.dont_write_bytecode = True
sys.path.insert(0, PEERS)

import report
import turns


def child(code):
    """A program that runs `code`, in which `turn()` waits for its turn."""
    prelude = "import sys\ndef turn():\n    print('ready', file=sys.stderr, flush=True)\n    assert sys.stdin.readline()\n"
    return [sys.executable, "-c", prelude + code]


class Turns(unittest.TestCase):
    def test_programs_alternate_step_by_step(self):
        with tempfile.NamedTemporaryFile("r") as log:
            step = "turn(); open({!r}, 'a').write('{}'); "
            programs = turns.alternate({name: child(step.format(log.name, name) * 3 + "print('{}')") for name in "AB"})
            self.assertEqual(log.read(), "ABABAB")
        self.assertEqual([program.document for program in programs], [{}, {}])

    def test_a_failure_is_told_and_stops_nobody_else(self):
        good, bad = turns.alternate({"good": child("turn(); turn(); print('[1]')"),
                                     "bad": child("turn(); print('out of luck', file=sys.stderr); sys.exit(3)")})
        self.assertEqual((good.document, good.error), ([1], ""))
        self.assertEqual((bad.document, bad.error), (None, "out of luck\n"))


class Gemm(unittest.TestCase):
    def run_gemm(self, *arguments):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = os.path.join(folder.name, "receipt")
        run = subprocess.run([sys.executable, os.path.join(PEERS, "gemm.py"), "--build", BUILD, "--peers", "", "--rows", "33",
                              "--cols", "256", "--formats", "q4_0,q6_k", "--tokens", "1,5", "--repeats", "3", "--rates",
                              "nominal", "--out", self.out, *arguments], capture_output=True, text=True)
        self.assertEqual(run.returncode, 0, run.stderr)
        with open(self.out + ".json") as file:
            return json.load(file), run.stderr

    def test_the_receipt_has_every_arm_in_every_case(self):
        receipt, _ = self.run_gemm("--octalane", "bf16@scalar,s8.group@scalar")
        self.assertEqual([(c["format"], c["tokens"]) for c in receipt["cases"]],
                         [("q4_0", 1), ("q4_0", 5), ("q6_k", 1), ("q6_k", 5)])
        for case in receipt["cases"]:
            self.assertEqual([cell["label"] for cell in case["cells"]],
                             ["octalane bf16 scalar", "octalane s8.group scalar"])
            for cell in case["cells"]:
                self.assertEqual(len(cell["samples_ms"]), 3)
                self.assertLess(cell["kernel_error"], 1e-5)
        self.assertEqual(receipt["failed"], [])
        for program in receipt["programs"].values():
            self.assertEqual(len(program["commands"]), 2)
            self.assertTrue(program["sampling"]["turns_with_other_programs"])
            self.assertIn("commit", program["machine"])

    def test_an_arm_that_cannot_run_is_told(self):
        receipt, said = self.run_gemm("--octalane", "bf16@scalar,f8.row@scalar", "--formats", "q4_0")
        self.assertEqual([failure["program"] for failure in receipt["failed"]], ["octalane f8.row@scalar"])
        self.assertIn("octalane: error: ", said)
        with open(self.out + ".md") as file:
            self.assertIn("Not run: q4_0, octalane f8.row@scalar: octalane: error: ", file.read())

    def test_reports_follow_from_the_receipt_alone(self):
        receipt, _ = self.run_gemm("--octalane", "bf16@scalar")
        written = {}
        for ending in (".md", "_speed.svg"):
            with open(self.out + ending) as file:
                written[ending] = file.read()
            os.remove(self.out + ending)
        report.write_reports(receipt, self.out)
        for ending, text in written.items():
            with open(self.out + ending) as file:
                self.assertEqual(file.read(), text)
        drawing = xml.etree.ElementTree.fromstring(written["_speed.svg"])
        lines = drawing.findall("{http://www.w3.org/2000/svg}polyline")
        self.assertEqual([len(line.get("points").split()) for line in lines], [2, 2])


class Reports(unittest.TestCase):
    def test_ratios_are_taken_within_each_repeat(self):
        import gemm
        cells = [{"label": "octalane bf16", "program": "octalane auto", "kernel": "k", "staged": "bf16", "format": "q4_0",
                  "samples_ms": [1, 2, 4], "ms": {"median": 2}},
                 {"label": "ggml slow", "program": "ggml", "samples_ms": [9, 9, 9], "ms": {"median": 9}},
                 {"label": "ggml fast", "program": "ggml", "samples_ms": [3, 4, 4], "ms": {"median": 4}},
                 {"label": "onednn bf16", "program": "onednn", "format": "bf16", "samples_ms": [1, 1, 1],
                  "ms": {"median": 1}},
                 {"label": "onednn s8", "program": "onednn", "format": "s8", "samples_ms": [1, 1, 1], "ms": {"median": 1}},
                 {"label": "octalane bf16 no_store", "program": "octalane x:auto", "kernel": "k+no_store", "staged": "bf16",
                  "format": "q4_0", "samples_ms": [1, 1, 1], "ms": {"median": 1}}]
        found = {(ratio["of"], ratio["over"]): ratio["speedup"] for ratio in gemm.ratios(cells)}
        self.assertEqual(found["octalane bf16", "ggml fast"], {"min": 1, "median": 2, "max": 3})
        self.assertEqual(found["octalane bf16", "onednn bf16"], {"min": 0.25, "median": 0.5, "max": 1})
        self.assertEqual(found["octalane bf16 no_store", "octalane bf16"], {"min": 1, "median": 2, "max": 4})
        self.assertEqual(len(found), 5)

    def test_only_arms_with_a_peak_have_a_line_in_the_chart_of_shares(self):
        share = {"min": 0.25, "median": 0.5, "max": 0.75}
        case = {"format": "q4_0", "tokens": 8, "cells": [{"label": "a", "peak": {"share": share}}, {"label": "b"}]}
        (series,) = report.panels([case], report.share)["q4_0"]
        self.assertEqual((series.name, series.points), ("a", {8: (0.25, 0.5, 0.75)}))


if __name__ == "__main__":
    unittest.main()
