# openai
import argparse
from pathlib import Path

from openai import OpenAI

PROMPT = "You sort the letters of a shop. Name the desk: billing, technical, shipping or returns."
parser = argparse.ArgumentParser(description="Sort a letter.")
parser.add_argument("--in-file", type=Path, required=True, help="file with the letter")
parser.add_argument("--out-file", type=Path, default=Path("desk.txt"))
args = parser.parse_args()
answer = OpenAI().chat.completions.create(
    model="gpt-4o-mini",
    messages=[{"role": "system", "content": PROMPT}, {"role": "user", "content": args.in_file.read_text()}],
)
args.out_file.write_text(answer.choices[0].message.content)
