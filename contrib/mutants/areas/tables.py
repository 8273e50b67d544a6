"""Tables as spreadsheets, hubs and other programs write them."""

from __future__ import annotations

from areas.mutant import Mutant, changes_of

READERS, TESTS = "plugins/workbench_readers", "tests/plugins/readers"
TABLES: list[Mutant] = [
    *changes_of(
        f"{READERS}/tables.py",
        f"{TESTS}/test_tables.py",
        ("if not any(map(holds, cells)):", "if not cells:", "a blank line of a spreadsheet is a row"),
        ("[_visible(str(cell)) for cell in cells]", "[str(cell) for cell in cells]", "spaces are part of a name"),
        ("while not self.names[-1]:", "while False:", "a blank column without a name has to be in each row"),
        ("if stated:", "if False:", "sep= is a header"),
        (
            "if wrong := beyond or [i for i in self.unnamed if holds(cells[i])]:",
            "if wrong := []:",
            "values in a column without a name are lost",
        ),
    ),
    *changes_of(
        f"{READERS}/texts.py",
        f"{TESTS}/test_tables.py",
        ("encoding = marked or str(told", "encoding = str(told", "the mark of an encoding says nothing"),
        ("if told is None and marked is None:", "if False:", "UTF-16 without a mark is read as UTF-8"),
        ("if _WINDOWS.search(data)", "if False", "the hint for Windows is that for Unix"),
    ),
    *changes_of(
        f"{READERS}/json_files.py",
        f"{TESTS}/test_tables.py",
        ("if math.isfinite(value):\n            return value", "return value", "NaN stays in a row"),
        (
            "islice(_odd_numbers(text), value.number, None)",
            "_odd_numbers(text)",
            "NaN is told where another one stands",
        ),
        ("if _LIST.match(text) and _is_json(text):", "if False:", "a list in .jsonl is refused"),
    ),
    *changes_of(
        f"{READERS}/spreadsheets.py",
        f"{TESTS}/test_spreadsheets.py",
        ("if _needs_second_look(location):", "if False:", "merged cells and formulas are not looked at"),
        ('return "" if cell.data_type == "str" else None', "return None", "a formula that gives nothing has no value"),
        ("type(value) is int and _FILLED", "False and _FILLED", "ids lose their zeros"),
        ("value.date() if value.time() == time() else value", "value", "a day has an hour"),
    ),
    *changes_of(
        f"{READERS}/values.py",
        f"{TESTS}/test_hub_values.py",
        ('if kind == "ClassLabel":', "if False:", "labels of a hub are numbers"),
        ("missing, field, _inside(feature)) for item", "missing, field) for item", "labels in lists are numbers"),
        ('if kind == "Image":', "if False:", "a picture is an object"),
        ("return str(value) if found is value", "return value if found is value", "a time in a list is no JSON"),
    ),
    *changes_of(
        f"{READERS}/parquet_and_hub.py",
        f"{TESTS}/test_hub_values.py",
        (
            "_rows_of(table, _features(schema.metadata), location)",
            "_rows_of(table, {}, location)",
            "parquet has no labels",
        ),
        ("except (ValueError, OverflowError):", "except ZeroDivisionError:", "a late year stops the file"),
    ),
    *changes_of(
        "core/workbench/task/dataset.py",
        "tests/task/test_rows.py",
        ("while count > 1 and made in taken:", "while False:", "an id like a running number loses a row"),
        ('f"row {number} has no field', 'f"row 1 has no field', "the first row is blamed"),
    ),
    *changes_of(
        "core/workbench/task/data.py",
        "tests/task/test_rows.py",
        ("if any(_overlap(field, place) for place in places)]", "]", "NaN is refused where nobody reads it"),
        ("if any(_overlap(field, place) for place in places)]", "if False]", "NaN is read as null"),
        ("if index < most]", "]", "NaN is refused in a row that is not used"),
    ),
    *changes_of(
        "core/workbench/task/rows.py",
        "tests/task/test_rows.py",
        ("suffix if suffix in known else suffix.lower()", "suffix", "a suffix in capitals has no reader"),
    ),
    *changes_of(
        "core/workbench/task/load.py",
        "tests/task/test_rows.py",
        ("*([lost] if lost else ())", "*()", "labels of which none is allowed are scored 0 in silence"),
    ),
    *changes_of(
        "core/workbench/inference/rows_file.py",
        "tests/inference/test_rows_file.py",
        ("{**_options(place, data, inputs), **options}", "options", "predict does not read what it advises"),
        ("(files and kind not in map(_reader, files))", "False", "options of another reader stop predict"),
        ("if column in _columns(data, inputs)}", "}", "the type of a label stops predict"),
    ),
    *changes_of(
        "plugins/workbench_import/promptfoo_tests.py",
        "tests/plugins/import_/test_promptfoo.py",
        ('_SHORT.get(found["type"], found["type"])', 'found["type"]', "a grade is a text that is equal"),
        ('(found["value"] is None and "-" not in found["type"])', "False", "the answer `cost` is an assertion"),
        ('"code" if code else "equals"', '"equals"', "a file with code is a text"),
    ),
]
