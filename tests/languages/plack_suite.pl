# Runs the tests of Plack for servers against a server that serves Plack::Test::Suite->test_app_handler at the URL given.
use strict;
use warnings;
use LWP::UserAgent;
use Plack::Test::Suite;
use Test::More;
use URI;

my $url = URI->new(shift);
my $agent = LWP::UserAgent->new;
for my $number (0 .. $#Plack::Test::Suite::TEST) {
    my ($name, $request) = @{$Plack::Test::Suite::TEST[$number]};
    note $name;
    local $ENV{PLACK_TEST_HANDLER} = 'Bolide';
    $request->(sub {
        my $sent = shift;
        $sent->uri->scheme('http');
        $sent->uri->host_port($url->host_port);
        $sent->header('X-Plack-Test' => $number);
        return $agent->simple_request($sent);
    });
}
print 'suite: ', scalar @Plack::Test::Suite::TEST, "\n";
done_testing;
