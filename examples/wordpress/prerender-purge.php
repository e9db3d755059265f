<?php
/**
 * Plugin Name: Prerender purge
 * Description: Purges the snapshots of a post, and of the archives that list it, when the post changes.
 *
 * Copy it to wp-content/mu-plugins/, and define in wp-config.php:
 *   define('PRERENDER_PURGE_URL', 'https://www.example.com/_purge');
 *   define('PRERENDER_TOKEN', '...');  // [admin] token
 */

/** The request body: the URLs of the post, the front page and the post's archives. */
function prerender_purge_body(WP_Post $post): array {
    $urls = [get_permalink($post), home_url('/')];
    if ($archive = get_post_type_archive_link($post->post_type)) {
        $urls[] = $archive;
    }
    foreach (get_object_taxonomies($post) as $taxonomy) {
        foreach (get_the_terms($post, $taxonomy) ?: [] as $term) {
            $urls[] = get_term_link($term);
        }
    }
    // The proxy serves the old snapshots for [cache] stale while new ones are rendered.
    return ['url' => array_values(array_unique(array_filter($urls, 'is_string'))), 'soft' => true];
}

add_action('transition_post_status', function (string $new, string $old, WP_Post $post): void {
    $seen = in_array('publish', [$new, $old], true);
    if (!$seen || wp_is_post_revision($post) || !is_post_type_viewable($post->post_type)) {
        return;
    }
    $body = prerender_purge_body($post);
    if ($new !== 'publish') {
        $body['soft'] = false;  // a post that is no longer public must no longer be served
    }
    $response = wp_remote_post(PRERENDER_PURGE_URL, [
        'headers' => ['Authorization' => 'Bearer ' . PRERENDER_TOKEN, 'Content-Type' => 'application/json'],
        'body' => wp_json_encode($body),
        'timeout' => 5,
    ]);
    if (is_wp_error($response) || wp_remote_retrieve_response_code($response) !== 200) {
        $reason = is_wp_error($response) ? $response->get_error_message() : wp_remote_retrieve_body($response);
        error_log("prerender: not purged: $reason");
    }
}, 10, 3);
