<?php
// How a service in PHP reads a path, a query or a body: one text a line in hexadecimal digits, one reading a line.
// `=` and the bytes in such digits, `-` for nothing, `*` for more than one text, `!` where it cannot be read.

[, $part, $name] = $argv;

function told(mixed $value): string {
    if ($value === null) {
        return '-';
    }
    // What a statement or an address is made of: `true` becomes 1 here, and `false` becomes nothing.
    return is_array($value) ? '*' : '=' . bin2hex((string) $value);
}

function path(string $text): string {
    $path = parse_url($text, PHP_URL_PATH);
    return is_string($path) ? told(rawurldecode($path)) : '!';
}

function query(string $text, string $name): string {
    // As it fills $_GET.
    parse_str($text, $all);
    return told($all[$name] ?? null);
}

function body(string $text, string $name): string {
    $value = json_decode($text, true);
    if (json_last_error() !== JSON_ERROR_NONE) {
        return '!';
    }
    return told(is_array($value) ? $value[$name] ?? null : null);
}

while (($line = fgets(STDIN)) !== false) {
    echo $part(hex2bin(trim($line)), $name), "\n";
}
