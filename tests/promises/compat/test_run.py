"""How two sides of a program are run and compared."""

import sys
from pathlib import Path

import pytest

from tests.promises.compat.run import (
    ROOT,
    Known,
    Program,
    Side,
    comparable,
    compare,
    differences,
    find_programs,
    missing_part,
    our_side,
    read_known,
    run_program,
)


def program(source: str) -> Program:
    return Program(Path("x01_test.py"), source)


def test_marks_are_read_from_the_first_comment_only() -> None:
    one = program("# upstream: no   (older forms)\n# compare: sets\nimport x\n# pieces: Piece\n")
    assert not one.runs_upstream
    assert one.mark("compare") == "sets"
    assert one.mark("pieces") is None
    assert program("import x\n# upstream: no\n").runs_upstream


def test_programs_have_a_number_and_may_be_chosen_by_name(tmp_path: Path) -> None:
    for name in ("x01_any", "x02_team", "helper"):
        (tmp_path / f"{name}.py").write_text("print(1)\n")
    assert [one.name for one in find_programs([tmp_path], [])] == ["x01_any", "x02_team"]
    assert [one.name for one in find_programs([tmp_path], ["x02_team"])] == ["x02_team"]


def test_an_interpreter_without_batonflow_runs_this_tree(tmp_path: Path) -> None:
    bare = tmp_path / "python"
    # Isolated from its packages, as in an environment that has none.
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    bare.chmod(0o755)
    assert our_side(str(bare)).search == (ROOT,)


def test_a_program_runs_in_a_folder_of_its_own_with_its_imports_turned_over(tmp_path: Path) -> None:
    (tmp_path / "x01_where.py").write_text("from workflows import events\nprint(events.__name__)\n")
    (one,) = find_programs([tmp_path], [])
    outcome = run_program(one, Side("ours", sys.executable, (ROOT,)), tmp_path / "run", record=False)
    assert (outcome.lines, outcome.problem) == (["batonflow.workflow_core.events"], "")


def test_expected_output_is_the_last_comment_block_without_remarks() -> None:
    source = "print(1)\n# expected:\n# {'Bad': 2}      (either order of the keys)\n# done (really)\n"
    assert program(source).expected == ["{'Bad': 2}", "done (really)"]


def test_lines_are_compared_in_order_unless_declared_otherwise() -> None:
    assert differences("p", comparable(["a", "b"], as_sets=False), comparable(["b", "a"], as_sets=False), [])
    assert not differences("p", comparable(["a", "b"], as_sets=True), comparable(["b", "a"], as_sets=True), [])
    assert differences("p", comparable(["a", "a"], as_sets=True), comparable(["a"], as_sets=True), [])


def test_streamed_types_are_compared_in_order_unless_declared_otherwise() -> None:
    theirs, ours = ["stream 1: A B StopEvent"], ["stream 1: B A StopEvent"]
    assert differences("p", comparable(theirs, as_sets=False), comparable(ours, as_sets=False), [])
    assert not differences("p", comparable(theirs, as_sets=True), comparable(ours, as_sets=True), [])


def test_pieces_in_a_row_count_once_in_streams_and_only_there() -> None:
    lines = ["stream 1: A Piece Piece B Piece Pieces StopEvent", "Piece Piece"]
    assert comparable(lines, as_sets=False, pieces="Piece") == [
        "stream 1: A Piece B Piece Pieces StopEvent",
        "Piece Piece",
    ]


def test_printed_dicts_match_a_recorded_output_in_any_order_of_keys() -> None:
    theirs = comparable(["{'a': 1, 'b': 2}", "{not a dict"], as_sets=False, dicts_sorted=True)
    assert theirs == comparable(["{'b': 2, 'a': 1}", "{not a dict"], as_sets=False, dicts_sorted=True)


def test_a_difference_names_side_and_line() -> None:
    assert differences("p", ["same", "old"], ["same", "new"], []) == ["    upstream: old", "        ours: new"]


@pytest.mark.parametrize(("name", "used", "left"), [("p", True, 0), ("another", False, 2)])
def test_a_known_difference_covers_lines_of_its_program_and_is_marked_as_used(name: str, used: bool, left: int) -> None:
    known = Known(program=name, pattern="^(old|new)$", item="DESIGN 3.1", reason="better")
    assert len(differences("p", ["old"], ["new"], [known])) == left
    assert known.used is used


def test_every_known_difference_names_a_program_of_ours_or_of_the_shared_ones_and_its_item() -> None:
    for entry in read_known():
        assert entry.item
        assert entry.reason
        assert entry.program[0] == "p" or (Path(__file__).parent / "programs" / f"{entry.program}.py").exists()


def test_there_are_ten_programs_and_more() -> None:
    assert len(find_programs([Path(__file__).parent / "programs"], [])) >= 10


def test_a_program_waits_for_a_part_that_is_not_there_yet(tmp_path: Path) -> None:
    side = Side("ours", sys.executable, (ROOT,))
    path = tmp_path / "x01_test.py"
    needs = {part: Program(path, f"# needs: {part}\nprint(1)\n") for part in ("agents", "team", "models", "telepathy")}
    assert {part: missing_part(one, side) for part, one in needs.items()} == {
        "agents": None,
        "team": None,
        "models": None,
        "telepathy": "telepathy",
    }
    problems, row = compare(needs["telepathy"], Side("upstream", "no-such-python"), side, [], tmp_path)
    assert problems == []
    assert row == ["x01_test", "-", "-", "-", "-", "waits for telepathy"]
