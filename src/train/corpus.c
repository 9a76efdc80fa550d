/* The built-in corpus, for training without files: stories of a few sentences about people who find, give and count things. A
 * sentence is a template; {A} and {B} are the two people of a story, {T} its thing, and so on, so that a model that looks back can
 * predict the next word. The sums are correct. */
#include "train/corpus.h"

#include <stdio.h>
#include <string.h>
#include "base/random.h"

typedef struct person {
    const char *name, *subject, *object;
} person;

static const person people[] = {
    { "Mira", "she", "her" }, { "Tom", "he", "him" },  { "Ada", "she", "her" },  { "Ben", "he", "him" },
    { "Lena", "she", "her" }, { "Max", "he", "him" },  { "Rosa", "she", "her" }, { "Paul", "he", "him" },
    { "Nora", "she", "her" }, { "Emil", "he", "him" }, { "Ida", "she", "her" },  { "Hugo", "he", "him" },
};
static const char *const places[] = { "garden", "forest", "harbour", "market", "mill",  "bridge",
                                      "tower",  "school", "meadow",  "river",  "house", "library" };
static const char *const things[] = { "key",    "lamp",  "shell", "book", "stone",  "coin",
                                      "basket", "apple", "drum",  "boat", "button", "letter" };
static const char *const adjectives[] = { "small", "old", "round", "shiny", "broken", "heavy", "strange", "pretty" };
static const char *const colours[] = { "red", "blue", "green", "yellow", "white", "black", "brown", "silver" };
static const char *const times[] = { "One morning", "One day",       "In the evening",
                                     "Last winter", "On a warm day", "After the rain" };

static const char *const openings[] = {
    "{W}, {A} went to the {P}.",
    "{W}, {A} and {B} walked to the {P}.",
    "{W}, {A} was sitting by the {P}.",
    "{W}, {A} ran all the way to the {P}.",
};
static const char *const finds[] = {
    "There {a} found a {L} {C} {T}.",
    "Under a tree lay a {L} {C} {T}.",
    "In the grass {a} saw a {L} {T}. It was {C}.",
    "{A} looked down and saw a {C} {T}.",
};
static const char *const talks[] = {
    "\"What a {L} {T}!\" said {A}.",
    "\"Is this your {T}?\" {A} asked {B}. \"No,\" said {B}, \"it is not my {T}.\"",
    "\"Look at this {C} {T}!\" said {A}. {B} looked at it for a long time.",
    "{B} came along and asked, \"May I have the {T}?\" {A} said yes.",
    "{B} came along and asked, \"May I have the {T}?\" But {A} said no.",
    "{A} wanted to keep the {T}, because it was {C}.",
};
static const char *const actions[] = {
    "{A} gave the {T} to {B}, and {B} was glad.",
    "{A} put the {T} into a box and took the box to the {Q}.",
    "So {A} and {B} carried the {T} to the {Q}.",
    "{B} hid the {T} in the {Q}, where nobody would find it.",
    "Then {A} threw the {T} into the water, and {B} laughed at {o}.",
};
static const char *const sums[] = {
    "{A} had {1} {T}s and {B} had {2} {T}s. Together they had {3} {T}s.",
    "{A} counted {1} {T}s at the {P} and {2} {T}s at the {Q}. That made {3} {T}s.",
    "\"{1} and {2} is {3},\" said {B}.",
    "There were {3} {T}s in the {Q}. {A} took {1}, and {2} were left.",
};
static const char *const endings[] = {
    "In the end {A} and {B} went home.",           "And the {T} is still in the {Q} today.",
    "After that {A} never went to the {P} again.", "\"Good night, {B},\" said {A}. \"Good night, {A},\" said {B}.",
    "That is the story of {A} and the {C} {T}.",
};

enum { AHEAD = 32 }; /* random numbers at a time: as many cost hardly more than one */

typedef struct story {
    uint64_t seed, number, drawn; /* number of this story, numbers drawn for it */
    uint32_t ahead[AHEAD];
    const person *a, *b;
    const char *place, *other_place, *thing, *look, *colour, *time;
    int one, two;
} story;

static uint32_t draw(story *s, uint32_t below)
{
    size_t at = s->drawn % AHEAD;
    if (!at) ls__random_fill_u32(s->ahead, AHEAD, s->seed, s->number, s->drawn);
    s->drawn++;
    return s->ahead[at] % below;
}

#define COUNT(list)   ((uint32_t)(sizeof(list) / sizeof *(list)))
#define PICK(s, list) ((list)[draw(s, COUNT(list))])

static void begin_story(story *s)
{
    uint32_t first = draw(s, COUNT(people)), step = 1 + draw(s, COUNT(people) - 1);
    s->a = &people[first];
    s->b = &people[(first + step) % COUNT(people)];
    first = draw(s, COUNT(places)), step = 1 + draw(s, COUNT(places) - 1);
    s->place = places[first];
    s->other_place = places[(first + step) % COUNT(places)];
    s->thing = PICK(s, things);
    s->look = PICK(s, adjectives);
    s->colour = PICK(s, colours);
    s->time = PICK(s, times);
    s->one = 2 + (int)draw(s, 8);
    s->two = 2 + (int)draw(s, 8);
}

/* What a letter in braces stands for. */
static const char *meaning(const story *s, char letter, char number[12])
{
    switch (letter) {
    case 'A': return s->a->name;
    case 'a': return s->a->subject;
    case 'o': return s->a->object;
    case 'B': return s->b->name;
    case 'P': return s->place;
    case 'Q': return s->other_place;
    case 'T': return s->thing;
    case 'L': return s->look;
    case 'C': return s->colour;
    case 'W': return s->time;
    }
    snprintf(number, 12, "%d", letter == '1' ? s->one : letter == '2' ? s->two : s->one + s->two);
    return number;
}

/* Appends one character where there is room; the rest is dropped. */
static void put(char *out, size_t bytes, size_t *at, char c)
{
    if (*at < bytes) out[*at] = c;
    ++*at;
}

static void fill_template(const story *s, const char *template, char *out, size_t bytes, size_t *at)
{
    char number[12];
    for (const char *p = template; *p; p++) {
        if (*p != '{') {
            put(out, bytes, at, *p);
            continue;
        }
        for (const char *word = meaning(s, p[1], number); *word; word++) put(out, bytes, at, *word);
        p += 2;
    }
}

void ls__corpus_fill(char *out, size_t bytes, uint64_t seed)
{
    size_t at = 0;
    for (uint64_t number = 0; at < bytes; number++) {
        story s = { .seed = seed, .number = number };
        begin_story(&s);
        const char *sentences[] = { PICK(&s, openings), PICK(&s, finds), PICK(&s, talks),
                                    PICK(&s, actions),  PICK(&s, sums),  PICK(&s, endings) };
        uint32_t left_out = draw(&s, 8); /* in half of the stories one of the four inner sentences */
        for (uint32_t i = 0; i < COUNT(sentences); i++) {
            if (i && i == left_out && i + 1 < COUNT(sentences)) continue;
            if (i) put(out, bytes, &at, ' ');
            fill_template(&s, sentences[i], out, bytes, &at);
        }
        put(out, bytes, &at, '\n');
        put(out, bytes, &at, '\n');
    }
}
