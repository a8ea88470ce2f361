//! Text to tree: our lexer and caps in front, the parser's grammar behind them, our own tree out.

pub mod tree;
