<?php
// How a service in PHP reads `id`: by `$_REQUEST`, which has query, form and cookies. `php -n -S 127.0.0.1:PORT request.php`.

$id = $_REQUEST['id'] ?? null;
echo $id === null ? '-' : (is_array($id) ? '*' : "=$id");
