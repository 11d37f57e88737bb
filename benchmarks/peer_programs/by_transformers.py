"""What a start takes at least without this package: transformers loads a model and its tokenizer, and runs one pass."""

import sys

from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype="float32")
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
model(**tokenizer(sys.argv[2], return_tensors="pt"))
