"""What is shown of a run: the report, and the live page."""

from __future__ import annotations

from areas.mutant import Mutant, changes_of

FOLDER = "plugins/workbench_view/"
ACCESS = ("tests/plugins/view/test_access.py",)
PAGES = ("tests/plugins/view/test_pages.py", "tests/plugins/view/test_hostile_pages.py")
REPORT = ("tests/plugins/view/test_report.py",)
LABELLING = ("tests/plugins/view/test_labelling.py",)
STARTING = ("tests/plugins/view/test_starting.py",)

VIEWED: list[Mutant] = [
    *changes_of(
        f"{FOLDER}noise.py",
        REPORT,
        ("/ len(differences)", "/ len(differing)", "the noise band leaves out the rows that do not differ"),
    ),
    *changes_of(
        f"{FOLDER}facts.py",
        REPORT,
        ("(found[0] > 0, ", "(found[0] < 0, ", "gains stand before losses"),
        ("calls.setdefault(str(event", "calls.__setitem__(str(event", "what a resumed run repeats counts as spent"),
        ("(before, after) if room > 0 else (None, None)", "(None, None)", "rows come without their traces"),
    ),
    *changes_of(
        f"{FOLDER}page.py",
        REPORT,
        ("autoescape=True", "autoescape=False", "texts of models are HTML"),
        ("-p.cost[cost]) for p", "p.cost[cost]) for p", "what costs more is on the front"),
    ),
    *changes_of(
        f"{FOLDER}plots.py",
        REPORT,
        ("best = max(best, point.score)", "best = point.score", "the best score so far falls"),
    ),
    *changes_of(
        f"{FOLDER}text_diff.py",
        REPORT,
        ('pieces += [("-", removed)] if removed else []', "pass", "words that were removed are not shown"),
    ),
    *changes_of(
        f"{FOLDER}exports.py",
        REPORT,
        ("""return f"'{cell}" if""", "return cell if", "ids of rows are formulas to a spreadsheet"),
    ),
    *changes_of(
        f"{FOLDER}server/access.py",
        ACCESS,
        ("found[1].lower() in self._names(server)", "True", "the page answers to any name"),
        ("_HOST.fullmatch(header)", "_HOST.match(header)", "a name that begins like ours is ours"),
        ("if len(names) == 1 else", "if names else", "a request with two names is answered"),
        ("if self.access.token is None or self._is_known(asked):", "if True:", "nobody asks for the token"),
        ('name, self.access.cookie or ""', 'name, self.access.token or ""', "the cookie tells the token"),
        ("httponly=True", "httponly=False", "a script can read the cookie"),
        ('.lstrip("/")', "[1:]", "the way in leads to another server"),
        ("script-src 'self'; ", "script-src 'self' 'unsafe-inline'; ", "a page may run what stands in it"),
    ),
    *changes_of(
        f"{FOLDER}server/site.py",
        ACCESS,
        ("if origin != f", "if origin is not None and origin != f", "a form without an origin is taken"),
        ('if kind != "application/x-www-form-urlencoded":', "if False:", "a form may be plain text"),
        ("self.form_token.encode()):", "self.form_token.encode()) and False:", "a form needs no token"),
        ("if len(body) > MOST_FORM:", "if False:", "a form may be of any length"),
        (
            '{type(error).__name__}: {error}")',
            '{type(error).__name__}")\n            number = str(error)',
            "a page tells what went wrong inside",
        ),
    ),
    *changes_of(
        f"{FOLDER}commands.py",
        ACCESS,
        (
            "if token is None and not is_loopback(",
            "if False and not is_loopback(",
            "all may listen elsewhere",
        ),
    ),
    *changes_of(
        f"{FOLDER}page.py",
        PAGES,
        ("visible(value) if type(value) is str else value", "value", "bidi and control characters reach the page"),
    ),
    *changes_of(
        f"{FOLDER}server/row.py",
        PAGES,
        ('for _ in (span.get("calls") or (None,))', "", "steps are counted by node"),
    ),
    *changes_of(
        "core/workbench/store/read_only.py",
        PAGES,
        ("self._seen == self._stamp() and not", "not", "what was written meanwhile is not seen"),
    ),
    *changes_of(
        f"{FOLDER}server/labelling.py",
        LABELLING,
        (
            "order_items([(one.cluster, one.item) for one in found.answers])",
            "[one.item for one in found.answers]",
            "the answers that come first are no draw",
        ),
        ("for one in labels if one.by == name}", "for one in labels}", "what one labelled nobody else is asked"),
        ("if not 0 <= score <= 1:", "if not score >= 0:", "a score may be anything"),
        ("if not any((item.row, item.key) == (row, key)", "if not any(True", "answers that nobody gave get labels"),
        (
            'elsewhere": found.named if',
            'elsewhere": None if',
            "labels go where the workflow does not read them, and nobody is told",
        ),
    ),
    *changes_of(
        f"{FOLDER}server/starting.py",
        STARTING,
        ("if site.start is None:", "if False:", "a run is started although the server was not told to"),
    ),
    *changes_of(
        "core/workbench/kit/lms/bounded_http.py",
        ("tests/kit/test_bounded_http.py",),
        ('"httpx2": "2.16"', '"httpx3": "2.16"', "clients on httpx2 read without a bound"),
    ),
]
