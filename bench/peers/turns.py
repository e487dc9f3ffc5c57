"""Programs that take turns: A B A B, one step each, so that a drifting machine touches all of them alike.

A program writes `ready` on stderr and waits for a line on standard input before each of its steps (`octalane bench gemm
--take-turns`, and the drivers in this folder); it prints one JSON document when it is done.
"""

import json
import subprocess
import tempfile


class Program:
    def __init__(self, name, command):
        self.name = name
        self.command = command
        self.error = ""
        self.document = None
        self._out = tempfile.TemporaryFile()  # a pipe would fill up while nobody reads it
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=self._out, stderr=subprocess.PIPE,
                                         text=True)
        self.waiting = self._wait()

    def take_turn(self):
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        self.waiting = self._wait()

    def _wait(self):
        """True when the program waits for its next turn; False when it has ended, with its document or its error."""
        for line in self._process.stderr:
            if line == "ready\n":
                return True
            self.error += line
        with self._process, self._out:
            self._process.stdin.close()
            if self._process.wait() == 0:
                self._out.seek(0)
                self.document = json.load(self._out)
            elif not self.error:
                self.error = f"ended with exit code {self._process.returncode}"
        return False


def alternate(commands):
    """Runs {name: command} in turns to their ends. Programs that fail leave the round; look at their `error`."""
    programs = [Program(name, command) for name, command in commands.items()]
    while any(program.waiting for program in programs):
        for program in programs:
            if program.waiting:
                program.take_turn()
    return programs
