export const SYSTEM = ["You sort the letters of a shop.", "Answer with one word: the desk."].join(" ");
