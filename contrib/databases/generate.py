"""Writes the two small databases of workflows/intercode_sql.yaml and twenty questions about them.

    python contrib/databases/generate.py workflows/data/intercode_sql

The questions and their gold queries were written by hand for this project. The rows are drawn, always the same ones.
"""

from __future__ import annotations

import json
import random
import sqlite3
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

TABLES = {
    "library": {
        "authors": "author_id INTEGER PRIMARY KEY, name TEXT, country TEXT, born INTEGER",
        "books": "book_id INTEGER PRIMARY KEY, title TEXT, author_id INTEGER, year INTEGER, pages INTEGER",
        "members": "member_id INTEGER PRIMARY KEY, name TEXT, city TEXT, joined INTEGER",
        "loans": "loan_id INTEGER PRIMARY KEY, book_id INTEGER, member_id INTEGER, month TEXT, days INTEGER",
    },
    "fleet": {
        "cities": "city_id INTEGER PRIMARY KEY, name TEXT, region TEXT, people INTEGER",
        "trucks": "truck_id INTEGER PRIMARY KEY, model TEXT, bought INTEGER, load_tons REAL",
        "trips": "trip_id INTEGER PRIMARY KEY, truck_id INTEGER, from_city INTEGER, to_city INTEGER, km INTEGER, "
        "cost REAL",
    },
}

QUESTIONS = [
    ("library", "How many books are there?", "SELECT COUNT(*) FROM books"),
    ("library", "What are the names of the authors from Norway?", "SELECT name FROM authors WHERE country = 'Norway'"),
    (
        "library",
        "From which countries do the authors come? List each country once.",
        "SELECT DISTINCT country FROM authors",
    ),
    (
        "library",
        "Which book has the most pages? Give its title.",
        "SELECT title FROM books ORDER BY pages DESC LIMIT 1",
    ),
    (
        "library",
        "List the titles of the books published after 2000, oldest first.",
        "SELECT title FROM books WHERE year > 2000 ORDER BY year, title",
    ),
    (
        "library",
        "How many loans did each member take? Give name and number, also for members without a loan.",
        "SELECT m.name, COUNT(l.loan_id) FROM members m LEFT JOIN loans l ON l.member_id = m.member_id GROUP BY "
        "m.member_id",
    ),
    (
        "library",
        "Which members never took a loan? Give their names.",
        "SELECT name FROM members WHERE member_id NOT IN (SELECT member_id FROM loans)",
    ),
    (
        "library",
        "What is the average number of days of a loan, for each month?",
        "SELECT month, AVG(days) FROM loans GROUP BY month",
    ),
    (
        "library",
        "Which authors wrote more than two books? Give their names.",
        "SELECT a.name FROM authors a JOIN books b ON b.author_id = a.author_id GROUP BY a.author_id HAVING COUNT(*) "
        "> 2",
    ),
    (
        "library",
        "How many different members borrowed a book by an author from Chile?",
        "SELECT COUNT(DISTINCT l.member_id) FROM loans l JOIN books b ON b.book_id = l.book_id JOIN authors a ON "
        "a.author_id = b.author_id WHERE a.country = 'Chile'",
    ),
    (
        "library",
        "In which cities do members live who joined before 2015? List each city once.",
        "SELECT DISTINCT city FROM members WHERE joined < 2015",
    ),
    (
        "library",
        "Which titles have more pages than the average book?",
        "WITH mean AS (SELECT AVG(pages) AS pages FROM books) SELECT title FROM books, mean WHERE books.pages > "
        "mean.pages",
    ),
    ("fleet", "What is the total load of all trucks in tons?", "SELECT SUM(load_tons) FROM trucks"),
    ("fleet", "How many trucks are there of each model?", "SELECT model, COUNT(*) FROM trucks GROUP BY model"),
    (
        "fleet",
        "Give the names of the cities with more than 100000 people, the largest first.",
        "SELECT name FROM cities WHERE people > 100000 ORDER BY people DESC",
    ),
    (
        "fleet",
        "Which region has the most cities?",
        "SELECT region FROM cities GROUP BY region ORDER BY COUNT(*) DESC LIMIT 1",
    ),
    (
        "fleet",
        "How many trips end in another region than they begin in?",
        "SELECT COUNT(*) FROM trips t JOIN cities a ON a.city_id = t.from_city JOIN cities b ON b.city_id = "
        "t.to_city WHERE a.region <> b.region",
    ),
    (
        "fleet",
        "How many kilometres did each truck drive? Give its number and the sum, for trucks with a trip.",
        "SELECT truck_id, SUM(km) FROM trips GROUP BY truck_id",
    ),
    ("fleet", "What is the cost per kilometre over all trips?", "SELECT SUM(cost) / SUM(km) FROM trips"),
    (
        "fleet",
        "Which cities does no trip lead to? Give their names.",
        "SELECT name FROM cities WHERE city_id NOT IN (SELECT to_city FROM trips)",
    ),
]


def rows(rng: random.Random) -> dict[str, dict[str, list[tuple[object, ...]]]]:
    """Rows by database and table. The values that questions ask for are sure to occur, and ties do not decide."""
    authors = ["Ane Berg", "Luis Rojas", "Mira Novak", "Odd Lien", "Sara Diaz", "Tomo Ito", "Uwe Kern", "Vera Poli"]
    countries = ["Norway", "Chile", "Croatia", "Norway", "Chile", "Japan", "Germany", "Italy"]
    words, things = ["Silent", "Red", "Last", "Small", "Winter", "Open"], ["Harbour", "Garden", "Letter", "River"]
    titles = [f"{w} {t}" for w in words for t in things]
    members = ["Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gina", "Hugo", "Ida", "Jon"]
    pages = rng.sample(range(90, 700), len(titles))
    towns = ["Arden", "Brill", "Corvo", "Dalen", "Esk", "Forde", "Gerro", "Hamn", "Ister"]
    regions = ["north", "south", "north", "east", "south", "north", "west", "east", "north"]
    return {
        "library": {
            "authors": [
                (i + 1, n, c, rng.randint(1930, 1985)) for i, (n, c) in enumerate(zip(authors, countries, strict=True))
            ],
            "books": [
                (i + 1, t, rng.choice([1, 1, 2, 2, 3, 4, 5, 6, 7]), 1981 + i * 2 % 43, pages[i])
                for i, t in enumerate(titles)
            ],
            "members": [
                (i + 1, n, rng.choice(["Arden", "Brill", "Corvo"]), rng.randint(2010, 2022))
                for i, n in enumerate(members)
            ],
            "loans": [
                (
                    i + 1,
                    rng.randint(1, len(titles)),
                    rng.choice([1, 2, 3, 5, 6, 7, 9, 10]),
                    rng.choice(["May", "June", "July"]),
                    rng.randint(2, 40),
                )
                for i in range(60)
            ],
        },
        "fleet": {
            "cities": [
                (i + 1, n, r, rng.randrange(20_000, 400_000, 1000))
                for i, (n, r) in enumerate(zip(towns, regions, strict=True))
            ],
            "trucks": [
                (
                    i + 1,
                    rng.choice(["Atlas", "Bison", "Crane"]),
                    rng.randint(2012, 2023),
                    rng.choice([7.5, 12.0, 18.0, 26.0]),
                )
                for i in range(11)
            ],
            "trips": [
                (
                    i + 1,
                    rng.randint(1, 9),
                    *rng.sample(range(1, 8), 2),
                    rng.randint(30, 600),
                    round(rng.uniform(40, 900), 2),
                )
                for i in range(70)
            ],
        },
    }


def script(tables: dict[str, str], content: dict[str, list[tuple[object, ...]]]) -> str:
    lines = [f"CREATE TABLE {name} ({columns});" for name, columns in tables.items()]
    for name, table in content.items():
        lines += [f"INSERT INTO {name} VALUES ({', '.join(map(literal, row))});" for row in table]
    return "\n".join(lines) + "\n"


def literal(value: object) -> str:
    return repr(value) if isinstance(value, int | float) else "'" + str(value).replace("'", "''") + "'"


def main(folder: Path) -> None:
    (folder / "dbs").mkdir(parents=True, exist_ok=True)
    drawn = rows(random.Random(0))
    for db, tables in TABLES.items():
        text = script(tables, drawn[db])
        (folder / "dbs" / f"{db}.sql").write_text(text, encoding="utf-8")
        connection = sqlite3.connect(":memory:")
        connection.executescript(text)
        for name, question, gold in QUESTIONS:
            if name == db and not any(any(v is not None for v in row) for row in connection.execute(gold)):
                raise SystemExit(f"the answer to {question!r} is empty")
        connection.close()
    write(folder / "questions.jsonl", shuffled(QUESTIONS))


def shuffled(questions: Sequence[tuple[str, str, str]]) -> Iterable[dict[str, object]]:
    for db, question, gold in random.Random(1).sample(list(questions), len(questions)):
        yield {"question": question, "db": db, "tables": list(TABLES[db]), "gold_sql": gold}


def write(path: Path, found: Iterable[dict[str, object]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in found), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
