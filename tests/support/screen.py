"""The screen of a terminal emulator: what a person sees of a program's output, as lines of text.

It knows the sequences (ECMA-48) that Bolide's screens consist of: the cursor's place, erasing, and attributes, which it ignores.
"""

import re

SEQUENCE = re.compile(r"\x1b\[(?P<mark>[?>]?)(?P<numbers>[0-9;]*)(?P<final>[A-Za-z])")
#: A sequence whose end has not been read yet.
UNFINISHED = re.compile(r"\x1b(\[[?>]?[0-9;]*)?$")


class EmulatedScreen:
    """A grid of characters of a fixed size. Text beyond the right edge continues in the next line, as in a terminal."""

    def __init__(self, columns, lines):
        self._pending = ""
        self.resize(columns, lines)

    def resize(self, columns, lines):
        """Empties the screen: terminals keep some of it, but each in its own way."""
        self.columns, self._height = columns, lines
        self._grid = [[" "] * columns for _ in range(lines)]
        self._row = self._column = 0

    def feed(self, text):
        text = self._pending + text
        self._pending = ""
        if unfinished := UNFINISHED.search(text):
            text, self._pending = text[: unfinished.start()], text[unfinished.start() :]
        place = 0
        for sequence in SEQUENCE.finditer(text):
            self._write(text[place : sequence.start()])
            place = sequence.end()
            if not sequence["mark"]:
                self._obey(sequence["final"], [int(number or 0) for number in sequence["numbers"].split(";")])
        self._write(text[place:])

    def lines(self):
        return ["".join(line).rstrip() for line in self._grid]

    def text(self):
        return "\n".join(self.lines())

    def _obey(self, final, numbers):
        if final == "H":
            row, column = (*numbers, 1)[:2]
            self._row, self._column = max(row, 1) - 1, max(column, 1) - 1
        elif final == "J" and numbers[0] == 2:
            self._grid = [[" "] * self.columns for _ in range(self._height)]
        elif final == "K":
            for column in range(self._column, self.columns):
                self._put(self._row, column, " ")

    def _write(self, text):
        for character in text:
            if character == "\r":
                self._column = 0
            elif character == "\n":
                self._row += 1
            elif character >= " ":
                if self._column >= self.columns:
                    self._row, self._column = self._row + 1, 0
                self._put(self._row, self._column, character)
                self._column += 1

    def _put(self, row, column, character):
        if row < self._height and column < self.columns:
            self._grid[row][column] = character
