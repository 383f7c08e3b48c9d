# The controller of an application of Catalyst: a template, a session, an upload, JSON, and a body that is streamed.
package Shop::Controller::Root;
use Moose;
use namespace::autoclean;
use JSON::MaybeXS ();
BEGIN { extends 'Catalyst::Controller' }
__PACKAGE__->config(namespace => '');

sub index :Path :Args(0) { $_[1]->response->body('code 0') }

sub hello :Local :Args(1) {
    my ($self, $c, $name) = @_;
    $c->stash(visitor => $name, template => 'hello.tt');
    $c->forward('View::HTML');
}

sub visits :Local :Args(0) {
    my ($self, $c) = @_;
    $c->session->{visits}++;
    $c->response->body("visit " . $c->session->{visits});
}

sub upload :Local :Args(0) {
    my ($self, $c) = @_;
    my $upload = $c->request->upload('file');
    my $bytes = $upload->slurp;
    $c->response->body(join ' ', $upload->basename, $upload->size, substr($bytes, 0, 5), substr($bytes, -5));
}

sub sum :Local :Args(0) {
    my ($self, $c) = @_;
    my $sum = 0;
    $sum += $_ for @{$c->request->body_data->{numbers}};
    $c->response->content_type('application/json');
    $c->response->body(JSON::MaybeXS->new(utf8 => 1)->encode({sum => $sum, name => "\x{e9}t\x{e9} \x{2603}"}));
}

sub parts :Local :Args(0) {
    my ($self, $c) = @_;
    $c->response->content_type('text/plain');
    $c->response->write("part $_\n") for 1 .. 1000;
}

sub file :Local :Args(0) {
    my ($self, $c) = @_;
    open my $file, '<:raw', $c->path_to('large.bin') or die "$!";
    $c->response->content_type('application/octet-stream');
    $c->response->body($file);
}

sub fails :Local :Args(0) { die "the route fails\n" }

sub default :Path { $_[1]->response->status(404); $_[1]->response->body('there is no such page') }

__PACKAGE__->meta->make_immutable;
1;
