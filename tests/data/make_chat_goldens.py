#!/usr/bin/env python3
"""Writes chat_goldens.jsonl: what transformers makes of templates, in the style of those that models have, and of constructs that these use.

    pip install transformers==5.22.2 jinja2 && tests/data/make_chat_goldens.py

A line is a template, its variables and its text (null: it fails), with the spans of generation blocks in bytes; or, of a tokenizer in kinds/, the
tokens of a chat and the mask of its answers, which a template with generation blocks and the same without them must both give.
"""
import json
import os
import tempfile

from transformers import PreTrainedTokenizerFast
from transformers.utils import chat_template_utils

HERE = os.path.dirname(os.path.abspath(__file__))
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}

CHATS = [
    [{"role": "user", "content": "Hello"}],
    [{"role": "system", "content": " Be brief.\n"}, {"role": "user", "content": "Is it\u00a0late? \u3000"},
     {"role": "assistant", "content": "  Na\u00efve \u65e5\u672c \U0001f600!\n"}, {"role": "user", "content": "\tSo?"}],
    [{"role": "user", "content": "2 + 2"}, {"role": "assistant", "content": "<think>\nadd\n</think>\n\nIt is 4."},
     {"role": "user", "content": "and 1?"}, {"role": "assistant", "content": "<think>more</think>5"}],
    [{"role": "user", "content": "Where?"},
     {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "find", "arguments": {"x": [1, 2.5, True, None], "y": "\u00e9\"/"}}}]},
     {"role": "tool", "content": "{\"at\": 3}"}, {"role": "assistant", "content": "At 3."}],
    [{"role": "assistant", "content": "first"}],
]

# As the families have them, in words of our own.
FAMILIES = {
    "chatml with a default": """{% for m in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou help.<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}""",
    "chatml with tools": """{%- if tools %}
    {{- '<|im_start|>system\\nTools: ' }}
    {%- for tool in tools %}{{ tool | tojson }}{% endfor %}
    {{- '<|im_end|>\\n' }}
{%- else %}
    {%- if messages[0].role == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endif %}
{%- for m in messages %}
    {%- if (m.role == "user") or (m.role == "system" and not loop.first) or (m.role == "assistant" and not m.tool_calls) %}
        {{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>' + '\\n' }}
    {%- elif m.role == "assistant" %}
        {{- '<|im_start|>' + m.role }}
        {%- if m.content %}
            {{- '\\n' + m.content }}
        {%- endif %}
        {%- for call in m.tool_calls %}
            {%- if call.function is defined %}
                {%- set call = call.function %}
            {%- endif %}
            {{- '\\n<call>\\n{"name": "' }}
            {{- call.name }}
            {{- '", "arguments": ' }}
            {{- call.arguments | tojson }}
            {{- '}\\n</call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif m.role == "tool" %}
        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<result>\\n' }}
        {{- m.content }}
        {{- '\\n</result>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
""",
    "chatml that thinks": """{%- set ns = namespace(open=true, last=messages|length - 1) %}
{%- for m in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.open and m.role == "user" and m.content is string and not(m.content.startswith('<result>') and m.content.endswith('</result>')) %}
        {%- set ns.open = false %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for m in messages %}
    {%- if m.content is string %}{%- set content = m.content %}{%- else %}{%- set content = '' %}{%- endif %}
    {%- if m.role == "assistant" %}
        {%- set thought = '' %}
        {%- if m.thought is defined and m.thought is not none %}
            {%- set thought = m.thought %}
        {%- elif '</think>' in content %}
            {%- set thought = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last and (loop.last or (not loop.last and thought)) %}
            {{- '<|im_start|>' + m.role + '\\n<think>\\n' + thought.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}
            {{- '<|im_start|>' + m.role + '\\n' + content }}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>' ~ m.role ~ '\\n' ~ content ~ '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}""",
    "headers": """{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}""",
    "headers with a date": """{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "1 Jan 2000" %}
    {%- endif %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{#- The first message #}
{%- if messages[0]['role'] == 'system' %}
    {%- set first = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set first = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if tools is not none %}
    {{- "Environment: tools\\n" }}
{%- endif %}
{{- "Today: " + date_string + "\\n\\n" }}
{{- first }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("One call at a time!") }}
        {%- endif %}
        {%- set call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' -}}
        {%- for name, value in call.arguments | items %}
            {{- name + '=' }}{{ value | tojson }}{% if not loop.last %}, {% endif %}
        {%- endfor %}
        {{- "<|eot_id|>" }}
    {%- else %}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
""",
    "inst": """{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}{% for message in loop_messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate user/assistant/user/assistant/...') }}{% endif %}{% if loop.index0 == 0 and system_message != false %}{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}""",
    "inst with tools": """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace() %}
{%- set ns.index = 0 %}
{%- for message in loop_messages %}
    {%- if not (message.role == "tool" or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("user and assistant must alternate") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST]" + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST]" + message["content"] + "[/INST]" }}
        {%- endif %}
        {%- if message == user_messages[-1] %}{{ "[LAST]" }}{%- endif %}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- "[CALLS][" }}
        {%- for call in message.tool_calls %}
            {%- set out = call.function|tojson %}
            {{- out[:-1] }}
            {{- ', "id": "' + "9" + '"}' }}
            {%- if not loop.last %}{{- ", " }}{%- else %}{{- "]" + eos_token }}{%- endif %}
        {%- endfor %}
    {%- elif message["role"] == "assistant" %}
        {{- message["content"] + eos_token}}
    {%- elif message["role"] == "tool" %}
        {{- '[RESULTS]{"content": ' + message.content|string + "}[/RESULTS]" }}
    {%- else %}
        {{- raise_exception("unknown role") }}
    {%- endif %}
{%- endfor %}
""",
    "bars": "{% for message in messages %}\n{% if message['role'] == 'user' %}\n{{ '<|user|>\n' + message['content'] + eos_token }}\n{% elif message['role'] == 'system' %}\n{{ '<|system|>\n' + message['content'] + eos_token }}\n{% elif message['role'] == 'assistant' %}\n{{ '<|assistant|>\n'  + message['content'] + eos_token }}\n{% endif %}\n{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}",
    "turns": """{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}{% for message in messages %}{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}{% if add_generation_prompt %}{{'<start_of_turn>model\n'}}{% endif %}""",
    "macros": """{%- macro show(content, before='', after='.') -%}
    {%- if content is string -%}{{ before ~ content | trim ~ after }}
    {%- else -%}{% for c in content if c.type == 'text' %}{{ c.text }}{% endfor %}{%- endif -%}
{%- endmacro -%}
{%- for m in messages -%}
{{ m.role | upper }}: {{ show(m.content, after='!') }}{{ show(m.role, '[', ']') }}
{% endfor %}""",
}
MARKED = {
    "chatml": """{%- for m in messages %}{%- if m.role == 'assistant' %}{{- '<|im_start|>assistant\\n' }}{%- generation %}{{- m.content + '<|im_end|>' }}{%- endgeneration %}{{- '\\n' }}{%- else %}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{%- endif %}{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}""",
    "headers": """{{ bos_token }}{% for m in messages %}{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' }}{% if m.role == 'assistant' %}{% generation %}{{ m.content | trim + '<|eot_id|>' }}{% endgeneration %}{% else %}{{ m.content | trim + '<|eot_id|>' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}""",
    "inst": """{% for m in messages %}{% if m.role == 'user' %}{{ bos_token + '[INST] ' + m.content.strip() + ' [/INST]' }}{% elif m.role == 'assistant' %}{% generation %}{{ ' ' + m.content.strip() + ' ' + eos_token }}{% endgeneration %}{% endif %}{% endfor %}""",
}
CONSTRUCTS = [
    "a\n  {% if true %}\n b\n  {% endif %}\n c {# no #}\nd\n", "x {%- if true -%}  y  {%- endif -%}  z", "  {%+ if true %} y{% endif +%}\nz",
    "{# a #}\n{#- b -#}\n c", "{{ 'a' 'b' \"c\\n\\t\\\\\\'\\u00e9\\x41\" }}", "{{ 1 + 2 * 3 - 4 // 3 ~ 7 % 4 }}", "{{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 1.0 }} {{ 2.5e0 if false else 0.1 }}",
    "{{ 1 == 1.0 }} {{ true == 1 }} {{ none == false }} {{ 'a' < 'b' }} {{ 2 >= 3 }} {{ 'b' in 'abc' }} {{ 2 not in [1, 2] }} {{ 'k' in {'k': 1} }}",
    "{{ not true or true and not false }}", "{{ (1, 2)[1] }} {{ [1, [2, 3]][1][0] }} {{ {'a': {'b': 3}}.a.b }} {{ {'a': 1}['a'] }}", "{{ {'a': {'b': 1}}['a']['b'] }}",
    "{{ 'h\u00e9llo'[1:3] }} {{ 'h\u00e9llo'[-1] }} {{ 'abc'[::-1] }} {{ [1,2,3,4][1::2] | join('-') }} {{ [1,2,3][5:] | length }} {{ [1,2,3][-2:] | join }} {{ 'abc'[:-5] }}|{{ [1,2,3][2:0:-1] | join }}",
    "{% for a in [1,2,3] %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.previtem }}{{ loop.nextitem }};{% endfor %}",
    "{% for a in [] %}x{% else %}none{% endfor %}{% for a in [1,2,3,4] if a % 2 == 0 %}{{ a }}{{ loop.length }}{% endfor %}", "{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}{{ v }}{% endfor %}{% for k in {'a': 1} %}{{ k }}{% endfor %}",
    "{% for a in [1,2,3,4] %}{% if a == 2 %}{% continue %}{% endif %}{% if a == 4 %}{% break %}{% endif %}{{ a }}{% endfor %}", "{% set x = 1 %}{% for a in [1] %}{% set x = 2 %}{{ x }}{% endfor %}{{ x }}",
    "{% set ns = namespace(x=1) %}{% for a in [1,2] %}{% set ns.x = ns.x + a %}{% endfor %}{{ ns.x }}", "{% set x %}a{{ 1 }}b{% endset %}[{{ x }}]", "{{ nothing }}|{{ nothing is defined }}|{{ nothing | default('d') }}|{{ '' | default('e', true) }}",
    "{{ nothing.x }}", "{{ 'a' + 1 }}", "{{ nothing + 'a' }}", "{{ raise_exception('no') }}", "{{ [] + [1] | length }}", "{{ none }} {{ true }} {{ 12345678901 }}", "{% if nothing %}a{% elif 1 %}b{% else %}c{% endif %}",
    "{{ ' a '.strip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'xa'.lstrip('x') }}|{{ 'ax'.rstrip('xy') }}|{{ 'a,b,c'.split(',', 1)[1] }}|{{ ' a  b '.split() | join('+') }}|{{ ''.split(',') | length }}",
    "{{ 'abc'.startswith('ab') }}{{ 'abc'.endswith('x') }}{{ 'abc'.replace('b', 'xx') }}{{ 'aBc'.upper() }}{{ 'aBc'.lower() }}{{ 'ab cd'.title() }}{{ 'aB'.capitalize() }}{{ 'abc'.find('c') }}",
    "{{ {'a': [1, 2.0, null, true, 'x\\n\u00e9<>&\\'']} | tojson }} {{ {'a': {}, 'b': []} | tojson(indent=2) }}", "{{ {'a': [1, {'b': 2}]} | tojson(indent=4) }}", "{{ 1e3 }}",
    "{{ 'a' if 1 else 'b' }}{{ 'a' if 0 }}{{ 'a' if 0 else 'b' if 0 else 'c' }}", "{{ 3 is odd }}{{ 4 is even }}{{ 4 is divisibleby 2 }}{{ 'a' is string }}{{ {} is mapping }}{{ [] is iterable }}{{ 1 is number }}{{ none is none }}{{ 1 is not none }}{{ true is boolean }}{{ 2 is in [1, 2] }}{{ 1 is eq 1 }}",
    "{{ messages | map(attribute='role') | join(',') }} {{ messages | rejectattr('role', 'equalto', 'user') | list | length }} {{ messages | first | length }} {{ (messages | last).role }} {{ messages | selectattr('content') | list | length }}",
    "{{ range(3) | list | join(',') }} {{ range(1, 10, 4) | join(' ') }} {{ [3, 1] | reverse | join }}", "{{ 'a' | upper | lower ~ 'b' }}", "{{ messages[0].role.upper() }} {{ messages[0]['nothing'] }} {{ messages[9] is defined }}", "{{ messages.x }}|",
    "{{ 'a\n  b' }}", "{{ '}}' }}{{ '%}' }}", "{{ '{' ~ '{%' }}", "{{ [1, 2,] | length }}{{ {'a': 1,} | length }}", "{{- 'a' -}} \n {{- 'b' -}} ", "{% if 1 %}\r\nx\r\n{% endif %}", "\n\nx\n\n", "{{ }}", "{% if 1 %}", "{{ 1", "{% endfor %}", "{{ 1 2 }}", "{# x",
    "{% generation %}a{% endgeneration %}b{% generation %}\u00e9{% endgeneration %}",
]


def render(template, variables):
    compiled = chat_template_utils._compile_jinja_template(template)
    compiled.environment.globals.pop("strftime_now", None)  # a text is the same tomorrow
    compiled = compiled.environment.from_string(template)
    v = {"messages": [], "tools": None, "documents": None, "add_generation_prompt": False} | variables
    text, spans = chat_template_utils._render_with_assistant_indices(compiled, v.pop("messages"), v.pop("tools"), v.pop("documents"), v.pop("add_generation_prompt"), **v)
    return text, [[len(text[:a].encode()), len(text[:b].encode())] for a, b in spans]


def main():
    lines = []
    for template in list(FAMILIES.values()) + list(MARKED.values()) + CONSTRUCTS:
        for chat in CHATS[:2] if template in CONSTRUCTS else CHATS:
            for prompt in (False,) if template in CONSTRUCTS else (False, True):
                variables = TOKENS | {"messages": chat, "tools": None, "documents": None, "add_generation_prompt": prompt}
                try:
                    text, spans = render(template, variables)
                except Exception:
                    text, spans = None, []
                lines.append({"template": template, "messages": chat, "prompt": prompt, "text": text, "spans": spans})
            if template in CONSTRUCTS and "messages" not in template:
                break
    for kind, style in (("qwen2", "chatml"), ("smollm2", "chatml"), ("llama3", "headers"), ("llama3", "chatml"), ("llama2", "inst"), ("tinyllama", "inst"),
                        ("mistral", "inst")):
        tokenizer_json = open(f"{HERE}/kinds/{kind}.json", "rb").read()
        with tempfile.TemporaryDirectory() as folder:
            open(f"{folder}/tokenizer.json", "wb").write(tokenizer_json)
            tokenizer = PreTrainedTokenizerFast(tokenizer_file=f"{folder}/tokenizer.json")
        bos = "<|begin_of_text|>" if kind == "llama3" else "<s>"
        eos = {"chatml": "<|im_end|>", "headers": "<|eot_id|>", "inst": "</s>"}[style]
        plain = MARKED[style]
        for tag in ("generation", "endgeneration"):
            for dash in ("-", ""):
                plain = plain.replace("{%" + dash + " " + tag + " %}", "{%" + dash + " if true %}" if tag == "generation" else "{%" + dash + " endif %}")
        chats = [c for c in CHATS if style != "inst" or c[0]["role"] == "user"]
        chats.append([{"role": "user", "content": "caf\u0065\u0301 'll"}, {"role": "assistant", "content": "e\u0301t\u00e9 the 12 don't\n\n "}, {"role": "user", "content": "he"},
                      {"role": "assistant", "content": "\n the"}])
        for chat in chats:
            got = tokenizer.apply_chat_template(chat, chat_template=MARKED[style], return_assistant_tokens_mask=True, return_dict=True, bos_token=bos, eos_token=eos)
            lines.append({"tokenizer": kind, "bos_token": bos, "eos_token": eos, "marked": MARKED[style], "plain": plain, "messages": chat, "tokens": got["input_ids"],
                          "mask": got["assistant_masks"]})
    with open(f"{HERE}/chat_goldens.jsonl", "w", encoding="utf-8") as f:
        for line in lines:
            f.write(json.dumps(line, ensure_ascii=False) + "\n")
    print(len(lines), "lines")


if __name__ == "__main__":
    main()
