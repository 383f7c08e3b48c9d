#!/usr/bin/env perl
# A Lite application of Mojolicious: a template, a session, an upload, JSON, and a body that is streamed.
use Mojolicious::Lite -signatures;

app->secrets(['of this test']);

get '/' => {text => 'code 0'};

get '/hello/:name' => 'hello';

get '/visits' => sub ($c) {
    $c->session(visits => ($c->session('visits') // 0) + 1);
    $c->render(text => 'visit ' . $c->session('visits'));
};

post '/upload' => sub ($c) {
    my $upload = $c->param('file');
    my $bytes = $upload->slurp;
    $c->render(text => join ' ', $upload->filename, $upload->size, substr($bytes, 0, 5), substr($bytes, -5));
};

post '/sum' => sub ($c) {
    my $sum = 0;
    $sum += $_ for $c->req->json->{numbers}->@*;
    $c->render(json => {sum => $sum, name => "\x{e9}t\x{e9} \x{2603}"});
};

# Mojolicious encodes the chunks by itself.
get '/parts' => sub ($c) {
    my @parts = map "part $_\n", 1 .. 1000;
    my $send;
    $send = sub ($c, @) { @parts ? $c->write_chunk(shift @parts => $send) : $c->finish };
    $c->$send;
};

get '/fails' => sub ($c) { die "the route fails\n" };

app->start;

__DATA__

@@ hello.html.ep
<p>Hello, <%= $name %>!</p>
