<?php
// How a service in PHP reads `id`: by `$_REQUEST`, which has query, form and cookies; and below `/from` out of one source, or each item of
// a list. `php -n -S 127.0.0.1:PORT request.php`.

function told(mixed $id): string {
    return $id === null ? '-' : (is_array($id) ? '*' : "=$id");
}

function each(mixed $ids): string {
    return is_array($ids) && $ids !== [] ? implode("\n", array_map(told(...), $ids)) : told($ids ?: null);
}

/** A body that is no JSON has no members. */
function body(): mixed {
    $body = json_decode(file_get_contents('php://input'), true);
    return json_last_error() === JSON_ERROR_NONE ? $body : [];
}

header('content-type: text/plain');
header('x-key: ' . ($_SERVER['HTTP_FENCING_KEY'] ?? ''));
// Not by parse_url, which takes `:2` at the end of a path for a port.
$path = rawurldecode(explode('?', $_SERVER['REQUEST_URI'], 2)[0]);
echo match (true) {
    preg_match('{^/from/path/([^/]+)$}D', $path, $found) === 1 => told($found[1]),
    preg_match('{^/from/action/([^/]+):cancel$}D', $path, $found) === 1 => told($found[1]),
    $path === '/from/query' => told($_GET['id'] ?? null),
    $path === '/from/queries' => each($_GET['id'] ?? null),
    $path === '/from/field' => told($_SERVER['HTTP_X_ID'] ?? null),
    $path === '/from/member' => told(body()['id'] ?? null),
    $path === '/from/members' => each(array_map(fn($item) => $item['id'] ?? null, body()['items'] ?? [])),
    default => told($_REQUEST['id'] ?? null),
};
