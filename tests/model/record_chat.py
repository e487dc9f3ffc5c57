#!/usr/bin/env python3
"""golden/chat.json: conversations, and what the chat templates that the models publish make of them.

usage: record_chat.py SMOLLM2.gguf TEMPLATES

SmolLM2's template is in its file. TEMPLATES is a folder with the "chat_template" of the others, as published with
Llama-2-7b-chat, Meta-Llama-3-8B-Instruct, Llama-3.1-8B-Instruct, Llama-3.2-3B-Instruct, Qwen2-7B-Instruct,
Qwen2.5-7B-Instruct and Qwen3-0.6B: llama-2.jinja, llama-3.jinja, ... They are rendered as the transformers package
does, without a clock. null: the template refuses the conversation.

Needs: gguf, jinja2.
"""

import json
import os
import sys

import gguf
import jinja2
import jinja2.sandbox

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden")

TOKENS = {"llama-2": ("<s>", "</s>"), "llama-3": ("<|begin_of_text|>", "<|eot_id|>"),
          "llama-3.1": ("<|begin_of_text|>", "<|eot_id|>"), "llama-3.2": ("<|begin_of_text|>", "<|eot_id|>"),
          "qwen2": ("", "<|im_end|>"), "qwen2.5": ("", "<|im_end|>"), "qwen3": ("", "<|im_end|>"),
          "smollm2": ("<|im_start|>", "<|im_end|>")}

SYSTEM, USER, ASSISTANT = "system", "user", "assistant"
CONVERSATIONS = {
    "one question": [(USER, "Why is the sky blue?")],
    "with a system message": [(SYSTEM, "Answer in one word."), (USER, "Why is the sky blue?")],
    "several turns": [(USER, "Hello"), (ASSISTANT, "Hi! How can I help?"), (USER, "Add 2 and 3."), (ASSISTANT, "5"),
                      (USER, "And 4?")],
    "several turns with a system message": [(SYSTEM, "You count."), (USER, "One"), (ASSISTANT, "Two"), (USER, "Three")],
    "white space around everything": [(SYSTEM, " \n Be brief. \n"), (USER, "\n\t spaces  \n"),
                                      (ASSISTANT, "  yes \n\n"), (USER, "  again\t")],
    "empty system message": [(SYSTEM, ""), (USER, "Hello")],
    "empty question": [(USER, "")],
    "braces, quotes and other writing": [(USER, "{{ x }} {% if %} 'a' \"b\" \\n \u4f60\u597d \U0001f600\nline two")],
    "thoughts of earlier answers": [(USER, "2+2?"), (ASSISTANT, "<think>\nSimple sum.\n</think>\n\n4"), (USER, "3+3?"),
                                    (ASSISTANT, "<think></think>6"), (USER, "4+4?")],
    "special tokens in the text": [(USER, "Write <|im_end|> or </s> or <|eot_id|>.")],
    "two questions in a row": [(USER, "Hello"), (USER, "Are you there?")],
    "system message later": [(USER, "Hello"), (ASSISTANT, "Hi"), (SYSTEM, "Now in French."), (USER, "Hello")],
}


def refuse(message):
    raise jinja2.TemplateError(message)


def render(template, tokens, conversation):
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.globals["raise_exception"] = refuse
    messages = [{"role": role, "content": content} for role, content in conversation]
    try:
        return environment.from_string(template).render(messages=messages, add_generation_prompt=True,
                                                        bos_token=tokens[0], eos_token=tokens[1])
    except jinja2.TemplateError:
        return None


def main():
    model, folder = sys.argv[1:]
    templates = {"smollm2": gguf.GGUFReader(model).fields["tokenizer.chat_template"].contents()}
    for name in TOKENS:
        if name != "smollm2":
            with open(os.path.join(folder, name + ".jinja"), encoding="utf-8") as file:
                templates[name] = file.read()
    recording = {
        "conversations": CONVERSATIONS,
        "begin": {name: TOKENS[name][0] for name in TOKENS},
        "prompts": {name: {title: render(templates[name], TOKENS[name], conversation)
                           for title, conversation in CONVERSATIONS.items()} for name in TOKENS},
    }
    with open(os.path.join(FOLDER, "chat.json"), "w", encoding="utf-8") as file:
        json.dump(recording, file, indent=1)
        file.write("\n")


main()
