"""Text to token ids and back, and chat templates. Loads no torch."""

from mooncake_core.tokenizer.chat import Message
from mooncake_core.tokenizer.stream import TokenStream
from mooncake_core.tokenizer.tokenizer import Tokenizer, load_tokenizer

__all__ = ["Message", "TokenStream", "Tokenizer", "load_tokenizer"]
