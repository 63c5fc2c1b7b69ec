<?php
// Every page takes 300 ms longer, so that requests of several visitors reach the cache at the same time.
add_action('template_redirect', function () { usleep(300000); });
// All visitors in the test have the same address.
add_filter('comment_flood_filter', '__return_false', 99);
