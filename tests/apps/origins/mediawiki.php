<?php
// What stands in LocalSettings.php behind what MediaWiki's installer has written. FOLDER is the test's.
$wgArticlePath = '/wiki/$1';
$wgUsePathInfo = true;
$wgSessionCacheType = CACHE_DB;
$wgJobRunRate = 0;
$wgRateLimits = [];
$wgPasswordAttemptThrottle = [];
// The documented settings for a cache in front, whose address is known once it has started.
$wgUseCdn = true;
$wgCdnMaxAge = 3600;
$wgUsePrivateIPs = true;
$wgCdnServers = file_exists('FOLDER/cache-address') ? [trim(file_get_contents('FOLDER/cache-address'))] : [];
$wgCdnServersNoPurge = ['127.0.0.1'];
// Every page takes 300 ms longer, so that requests of several visitors meet at the cache.
$wgHooks['BeforePageDisplay'][] = static function () { usleep(300000); };
