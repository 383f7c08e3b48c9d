# An application of Dancer2: routes, a template, a session, an upload, JSON, and a body that is streamed.
package Visits;
use Dancer2;

set session => 'YAML';
set engines => {session => {YAML => {session_dir => "$FindBin::Bin/../sessions"}}};
set logger => 'console';
set layout => undef;

get '/' => sub { 'code 0' };

get '/hello/:name' => sub { template 'hello', {name => route_parameters->get('name')} };

get '/visits' => sub {
    session visits => (session('visits') // 0) + 1;
    return 'visit ' . session('visits');
};

post '/upload' => sub {
    my $upload = upload('file');
    return join ' ', $upload->basename, $upload->size, substr($upload->content, 0, 5), substr($upload->content, -5);
};

post '/sum' => sub {
    my $numbers = decode_json(request->body)->{numbers};
    my $sum = 0;
    $sum += $_ for @$numbers;
    content_type 'application/json';
    return encode_json({sum => $sum, name => "\x{e9}t\x{e9} \x{2603}"});
};

get '/file' => sub { send_file('large.bin') };

get '/parts' => sub {
    delayed {
        flush;
        content "part $_\n" for 1 .. 1000;
        done;
    };
};

get '/old' => sub { redirect '/hello/moved' };

get '/fails' => sub { die "the route fails\n" };

true;
