#!/usr/bin/env python3
"""Compares chats rendered by lockstep with those of transformers, for any number of templates of models.

    tests/data/check_chat.py build/lib/liblockstep.so FOLDER...

FOLDERs have files *.jinja, such as models/templates of llama.cpp or trl/chat_templates. Needs transformers and jinja2. Prints what lockstep refuses that transformers
does not, with the reason; exits 1 if a text differs.
"""
import collections
import ctypes
import json
import pathlib
import sys

from transformers.utils import chat_template_utils

from make_chat_goldens import CHATS


class Lockstep:
    def __init__(self, library):
        self.lib = ctypes.CDLL(library)
        self.lib.ls_error.restype = ctypes.c_char_p

    def render(self, path, chat, prompt):
        tokenizer, template, text = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_char_p()
        messages = json.dumps(chat).encode()
        lib, result = self.lib, None
        options = (ctypes.c_char_p * 4)(None, str(path).encode())  # ls_tokenizer_options: end_token, chat_template
        if (not lib.ls_tokenizer_open(ctypes.byref(tokenizer), b"bytes", options)
                and not lib.ls_chat_template_open(ctypes.byref(template), tokenizer)
                and not lib.ls_chat_render(template, messages, ctypes.c_size_t(len(messages)), ctypes.c_bool(prompt), ctypes.byref(text), None)):
            result = text.value.decode()
        message = lib.ls_error().decode()
        lib.ls_chat_template_free(ctypes.byref(template))
        lib.ls_tokenizer_free(ctypes.byref(tokenizer))
        return result, message


def expected(source, chat, prompt):
    try:
        compiled = chat_template_utils._compile_jinja_template(source)
        compiled.environment.globals.pop("strftime_now", None)  # lockstep has none
        compiled = compiled.environment.from_string(source)
        return compiled.render(messages=chat, tools=None, documents=None, add_generation_prompt=prompt, eos_token="<|endoftext|>")
    except Exception:
        return None


def main():
    lockstep, counts, refused, differ = Lockstep(sys.argv[1]), collections.Counter(), {}, 0
    files = sorted(f for folder in sys.argv[2:] for f in pathlib.Path(folder).glob("*.jinja"))
    for path in files:
        source = path.read_text()
        for chat in CHATS:
            for prompt in (False, True):
                want = expected(source, chat, prompt)
                got, message = lockstep.render(path.resolve(), chat, prompt)
                if got == want:
                    counts["the same text" if want is not None else "refused by both"] += 1
                elif got is None:
                    counts["refused by lockstep"] += 1
                    refused[path.name] = message
                elif want is None:
                    counts["refused by transformers"] += 1
                else:
                    differ += 1
                    print(f"{path}: {got[:300]!r}\nexpected {want[:300]!r}")
    for name, message in refused.items():
        print(f"{name}: {message}")
    print(f"{len(files)} templates, {len(files) - len(refused)} without a refusal of lockstep's; {differ} texts differ;", ", ".join(f"{n} {what}" for what, n in counts.items()))
    sys.exit(differ > 0)


if __name__ == "__main__":
    main()
