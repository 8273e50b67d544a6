"""The dialect lab: one scripted server that speaks as each provider does, and refuses what that one refuses.

`declared` holds the dialects, an entry each; `rules` what servers refuse; `wording` how they say an answer; `server`
plays them all; `planted` is the model behind them; `consumers` are the parts of the product that ask models. A new
dialect is one entry, and `test_matrix` and `docs/reference/works-with.md` take it up.
"""
