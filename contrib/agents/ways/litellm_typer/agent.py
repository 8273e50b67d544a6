# litellm, typer
import os

import litellm
import typer

app = typer.Typer()


@app.command()
def sort(letter: str = typer.Option(...), shout: bool = False) -> None:
    """Sort a letter."""
    answer = litellm.completion(
        model=os.environ.get("SORTER_MODEL", "openai/gpt-4o-mini"),
        messages=[
            {
                "role": "system",
                "content": "You are a clerk. Answer with a desk: billing, technical, shipping, returns.",
            },
            {"role": "user", "content": letter},
        ],
    )
    desk = answer.choices[0].message.content
    typer.echo(desk.upper() if shout else desk)


app()
