<?php
// What PHP takes for one value: as convert.py.

$how = [
    '(int) $id' => fn(string $text) => (int) $text,
    'intval($id, 0)' => fn(string $text) => intval($text, 0),
    'FILTER_VALIDATE_INT' => fn(string $text) => filter_var($text, FILTER_VALIDATE_INT, FILTER_NULL_ON_FAILURE),
    '==' => fn(string $text, string $row) => $text == $row ? $row : false,
    'strcasecmp' => fn(string $text, string $row) => strcasecmp($text, $row) === 0 ? $row : false,
];

while (($line = fgets(STDIN)) !== false) {
    [$name, $row, $spelling] = array_map('hex2bin', explode(' ', trim($line)));
    $value = $how[$name]($spelling, $row);
    echo match ($value) {
        null => '!',
        false => '-',
        default => '=' . bin2hex((string) $value),
    }, "\n";
}
