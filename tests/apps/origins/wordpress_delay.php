<?php
// Every page takes 300 ms longer, so that requests of several visitors meet at the cache.
add_action('template_redirect', function () { usleep(300000); });
// All visitors of the test have one address.
add_filter('comment_flood_filter', '__return_false', 99);
