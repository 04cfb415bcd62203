"""Writes `cai.json` and `dlpack.json` from the tables in `source/`. With `--check`, checks that they are up to date."""

import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "source")]

import cai  # noqa: E402
import dlpack  # noqa: E402
import faults  # noqa: E402
from reader import cai_facts, coded, dlpack_facts  # noqa: E402


def case(kind, name, given, why, ids, choice, outcome):
    """Returns one case as a line of JSON."""
    ids = ids.split()
    seen = [faults.SEEN[fault] for fault in ids if fault in faults.SEEN]
    fields = {"id": name, kind: {key: coded(item) for key, item in given.items()}, **outcome, "why": why, "ids": ids}
    if seen:
        fields["seen"] = seen
    if choice:
        fields["choice"] = True
    return json.dumps(fields, ensure_ascii=False, separators=(", ", ": "))


def facts(worked_out):
    return {"facts": {key: coded(item) for key, item in worked_out.items()}}


def error(expected):
    kind, place = expected
    return {"error": {"kind": kind, "place": place}}


def dicts():
    def given(changes):
        return {key: item for key, item in {**cai.PLAIN, **changes}.items() if item is not cai.ABSENT}

    for name, changes, *rest in cai.LEGAL:
        yield case("dict", name, given(changes), *rest, facts(cai_facts(given(changes))))
    for name, changes, expected, *rest in cai.ILLEGAL:
        yield case("dict", name, given(changes), *rest, error(expected))


def tensors():
    for name, tensor, *rest in dlpack.LEGAL:
        yield case("tensor", name, tensor, *rest, facts(dlpack_facts(tensor)))
    for name, tensor, expected, *rest in dlpack.ILLEGAL:
        yield case("tensor", name, tensor, *rest, error(expected))


def main():
    stale = []
    for name, cases in (("cai.json", dicts()), ("dlpack.json", tensors())):
        text = '{"format": 1, "cases": [\n' + ",\n".join(cases) + "\n]}\n"
        path = os.path.join(HERE, name)
        if "--check" in sys.argv:
            with open(path, encoding="utf-8") as file:
                stale += [name] if file.read() != text else []
        else:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
    if stale:
        print(f"not what the tables say: {', '.join(stale)}; run generate.py")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
