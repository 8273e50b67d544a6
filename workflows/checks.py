"""Verifiers for workflows/reflect.yaml. They see the question and the answer, never a label."""

import re


def last_digit(question: str, answer: str) -> tuple[float, str]:
    """Casting out tens: a sum's last digit is that of the sum of last digits."""
    right = sum(int(number[-1]) for number in re.findall(r"\d+", question)) % 10
    given = re.findall(r"\d+", answer)
    return float(bool(given) and int(given[-1][-1]) == right), f"The last digit must be {right}."
