<?php
// Installs WordPress from a folder, with users and posts. Usage: php wordpress.php FOLDER
define('WP_INSTALLING', true);
$_SERVER['HTTP_HOST'] = 'www.example';
require $argv[1] . '/wp-load.php';
require ABSPATH . 'wp-admin/includes/upgrade.php';
wp_install('A blog', 'admin', 'admin@example.org', true, '', 'admin-secret');
switch_theme('twentytwentyone');
update_option('permalink_structure', '/%postname%/');
foreach (['alice', 'bob'] as $name) {
    wp_insert_user(['user_login' => $name, 'user_pass' => "$name-secret", 'user_email' => "$name@example.org", 'role' => 'subscriber']);
}
$posts = [
    ['post_title' => 'Open post', 'post_content' => 'the open text'],
    ['post_title' => 'Guarded post', 'post_content' => 'the guarded text', 'post_password' => 'letmein'],
];
foreach ($posts as $post) {
    wp_insert_post($post + ['post_status' => 'publish', 'comment_status' => 'open', 'post_author' => 1]);
}
flush_rewrite_rules();
$open = get_page_by_path('open-post', OBJECT, 'post');
echo $open->ID, "\n";
