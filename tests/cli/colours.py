"""How colours look to people who see no red (protanopia) or no green (deuteranopia), and how far apart they are: CIEDE2000 between colours
as Machado, Oliveira and Fernandes (2009, severity 1) and Vienot, Brettel and Mollon (1999) simulate them. No dependencies."""
import itertools
import math
import re

SIGHTS = {  # on linear RGB
    "as most see it": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia (Machado)": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia (Machado)": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "protanopia (Vienot)": ((0.11238, 0.88762, 0), (0.11238, 0.88762, 0), (0.00401, -0.00401, 1)),
    "deuteranopia (Vienot)": ((0.29275, 0.70725, 0), (0.29275, 0.70725, 0), (-0.02234, 0.02234, 1)),
}
TO_XYZ = ((0.4124564, 0.3575761, 0.1804375), (0.2126729, 0.7151522, 0.0721750), (0.0193339, 0.1191920, 0.9503041))
WHITE = (0.95047, 1.0, 1.08883)


def times(matrix, v):
    return tuple(sum(m * x for m, x in zip(row, v)) for row in matrix)


def linear(colour):
    """#rrggbb as linear RGB."""
    parts = [int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)]
    return tuple(x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts)


def seen(rgb, matrix):
    return tuple(min(1.0, max(0.0, x)) for x in times(matrix, rgb))


def lab(rgb):
    f = [t ** (1 / 3) if t > 216 / 24389 else (24389 / 27 * t + 16) / 116 for t in (x / w for x, w in zip(times(TO_XYZ, rgb), WHITE))]
    return 116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])


def ciede2000(one, two):
    (l1, a1, b1), (l2, a2, b2) = one, two
    mean = (math.hypot(a1, b1) + math.hypot(a2, b2)) / 2
    g = 0.5 * (1 - math.sqrt(mean ** 7 / (mean ** 7 + 25 ** 7)))
    a1, a2 = a1 * (1 + g), a2 * (1 + g)
    c1, c2 = math.hypot(a1, b1), math.hypot(a2, b2)
    h1, h2 = math.degrees(math.atan2(b1, a1)) % 360, math.degrees(math.atan2(b2, a2)) % 360
    grey = c1 * c2 == 0
    dh = 0 if grey else (h2 - h1 + 180) % 360 - 180
    if not grey and h2 - h1 == 180:
        dh = 180
    total = h1 + h2
    h = total if grey else total / 2 if abs(h1 - h2) <= 180 else total / 2 + (180 if total < 360 else -180)
    l, c = (l1 + l2) / 2, (c1 + c2) / 2
    t = (1 - 0.17 * math.cos(math.radians(h - 30)) + 0.24 * math.cos(math.radians(2 * h)) + 0.32 * math.cos(math.radians(3 * h + 6))
         - 0.20 * math.cos(math.radians(4 * h - 63)))
    sl = 1 + 0.015 * (l - 50) ** 2 / math.sqrt(20 + (l - 50) ** 2)
    dl, dc, dhh = (l2 - l1) / sl, (c2 - c1) / (1 + 0.045 * c), 2 * math.sqrt(c1 * c2) * math.sin(math.radians(dh) / 2) / (1 + 0.015 * c * t)
    turn = -2 * math.sqrt(c ** 7 / (c ** 7 + 25 ** 7)) * math.sin(math.radians(60 * math.exp(-((h - 275) / 25) ** 2)))
    return math.sqrt(dl ** 2 + dc ** 2 + dhh ** 2 + turn * dc * dhh)


def difference(one, two, sight):
    matrix = SIGHTS[sight]
    return ciede2000(lab(seen(linear(one), matrix)), lab(seen(linear(two), matrix)))


def contrast(one, two):
    """By WCAG: 1 to 21."""
    a, b = sorted((times(TO_XYZ, linear(c))[1] + 0.05 for c in (one, two)), reverse=True)
    return a / b


def themes(page):
    """The variables of the page's style sheet, light and dark."""
    style = re.search(r"<style>(.*?)</style>", page, re.S)[1]
    blocks = {"light": re.search(r":root\{([^}]*)\}", style)[1],
              "dark": re.search(r"prefers-color-scheme:dark\)\{:root\{([^}]*)\}", style)[1],
              "print": re.search(r"@media print\{:root\{([^}]*)\}", style)[1]}
    return {name: dict(re.findall(r"--([\w-]+):(#[0-9a-f]{6});", text)) for name, text in blocks.items()}


def phases(theme):
    return {name: colour for name, colour in theme.items() if "on-" + name in theme}


def too_close(theme, limit):
    """Pairs of phases that are hard to distinguish: (difference, who, one, other)."""
    out = []
    for (a, x), (b, y) in itertools.combinations(sorted(phases(theme).items()), 2):
        out += [(round(d, 1), sight, a, b) for sight in SIGHTS if (d := difference(x, y, sight)) < limit]
    return sorted(out)
