<?php
// Settings appended to the LocalSettings.php that MediaWiki's installer has written. FOLDER is the test's folder.
$wgArticlePath = '/wiki/$1';
$wgUsePathInfo = true;
$wgSessionCacheType = CACHE_DB;
$wgJobRunRate = 0;
$wgRateLimits = [];
$wgPasswordAttemptThrottle = [];
// The documented settings for a cache in front of MediaWiki. Its address is known only after it has started.
$wgUseCdn = true;
$wgCdnMaxAge = 3600;
$wgUsePrivateIPs = true;
$wgCdnServers = file_exists('FOLDER/cache-address') ? [trim(file_get_contents('FOLDER/cache-address'))] : [];
$wgCdnServersNoPurge = ['127.0.0.1'];
// Every page takes 300 ms longer, so that requests of several visitors reach the cache at the same time.
$wgHooks['BeforePageDisplay'][] = static function () { usleep(300000); };
