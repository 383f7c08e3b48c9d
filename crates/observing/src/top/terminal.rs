//! The terminal of `bolide top`: its screen and its keys, and its former state at every end. It does not know models. The
//! command-line process runs it.

use std::io::{self, Stdout};
use std::os::fd::AsFd;
use std::sync::Once;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode, size,
};
use ratatui::crossterm::{ExecutableCommand, execute};

use ratatui::layout::Rect;
use ratatui::{Frame, Terminal, TerminalOptions, Viewport};

use crate::top::model::Key;

/// Signals that end the command. SIGINT is a key in raw mode, but may be sent too.
const ENDS: [Signal; 4] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT];

/// What has happened.
#[derive(Debug, PartialEq, Eq)]
pub enum ScreenEvent {
    /// The time has passed.
    Nothing,
    Key(Key),
    /// The screen has another size, or was covered.
    Redraw,
    /// A signal ends the command.
    End,
}

/// A terminal in raw mode. Dropping it restores the former state.
#[derive(Debug)]
pub struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    /// Columns and lines of the terminal when it was cleared.
    size: (u16, u16),
    signals: SignalFd,
}

impl Screen {
    /// Takes the terminal.
    ///
    /// # Errors
    /// The terminal can't be changed.
    pub fn open() -> io::Result<Screen> {
        let set: SigSet = ENDS.into_iter().chain([Signal::SIGWINCH]).collect();
        // A blocked signal is read where the loop waits, so that it finds the terminal in no intermediate state.
        set.thread_block()?;
        let signals = SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        restore_after_panics();
        enable_raw_mode()?;
        let opened = io::stdout().execute(EnterAlternateScreen).map(drop);
        let opened = opened.and_then(|()| size()).and_then(|size| Ok((whole_screen(size)?, size)));
        match opened {
            Ok((terminal, size)) => Ok(Screen { terminal, size, signals }),
            Err(error) => {
                restore();
                Err(error)
            }
        }
    }

    /// Begins again on an empty screen of the present size.
    ///
    /// # Errors
    /// The terminal can't be written.
    pub fn begin_again(&mut self) -> io::Result<()> {
        self.size = size()?;
        self.terminal = whole_screen(self.size)?;
        Ok(())
    }

    /// Draws a frame, on an empty screen if the terminal has another size than before. A signal follows each resize, so a frame
    /// that was drawn during one is drawn again.
    ///
    /// # Errors
    /// The terminal can't be written.
    pub fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        if size()? != self.size {
            self.begin_again()?;
        }
        self.terminal.draw(draw).map(drop)
    }

    /// Reads a signal. One that arrives between two waits is still there at the next one, so no resize is lost.
    fn signal(&self) -> io::Result<ScreenEvent> {
        Ok(match self.signals.read_signal()? {
            Some(signal) if signal.ssi_signo == Signal::SIGWINCH as u32 => ScreenEvent::Redraw,
            Some(_) => ScreenEvent::End,
            None => ScreenEvent::Nothing,
        })
    }

    /// Waits for a key, a signal or the end of the time.
    ///
    /// # Errors
    /// The terminal can't be read: it is gone.
    pub fn wait(&self, milliseconds: u64) -> io::Result<ScreenEvent> {
        if !event::poll(std::time::Duration::ZERO)? {
            let input = io::stdin();
            let mut ready = [PollFd::new(input.as_fd(), PollFlags::POLLIN), PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
            match poll(&mut ready, PollTimeout::try_from(milliseconds).unwrap_or(PollTimeout::MAX)) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
            if ready[1].any() == Some(true) {
                return self.signal();
            }
            if ready[0].revents().is_some_and(|found| found.contains(PollFlags::POLLHUP)) {
                return Ok(ScreenEvent::End);
            }
        }
        if !event::poll(std::time::Duration::ZERO)? {
            return Ok(ScreenEvent::Nothing);
        }
        Ok(match event::read()? {
            Event::Key(key) if key.kind != KeyEventKind::Release => {
                key_of(key.code, key.modifiers).map_or(ScreenEvent::Nothing, ScreenEvent::Key)
            }
            Event::Resize(..) | Event::FocusGained => ScreenEvent::Redraw,
            _ => ScreenEvent::Nothing,
        })
    }
}

/// The size is fixed until the next resize: with a size of its own choice, the library asks the terminal for the place of its
/// cursor, and not every terminal answers.
fn whole_screen((width, height): (u16, u16)) -> io::Result<Terminal<CrosstermBackend<Stdout>>> {
    execute!(io::stdout(), Hide, Clear(ClearType::All))?;
    let viewport = Viewport::Fixed(Rect::new(0, 0, width, height));
    Terminal::with_options(CrosstermBackend::new(io::stdout()), TerminalOptions { viewport })
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

fn key_of(code: KeyCode, modifiers: KeyModifiers) -> Option<Key> {
    Some(match code {
        KeyCode::Char('c' | 'd') if modifiers.contains(KeyModifiers::CONTROL) => Key::Interrupt,
        KeyCode::Char(_) if modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) => return None,
        KeyCode::Char(character) => Key::Character(character),
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Escape,
        KeyCode::Backspace => Key::Backspace,
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Left => Key::Left,
        KeyCode::Right => Key::Right,
        _ => return None,
    })
}

/// A message of a panic would be lost with the other screen.
fn restore_after_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            before(panic);
        }));
    });
}

/// Errors are dropped: a terminal that is gone does not need to be restored.
fn restore() {
    let _ = disable_raw_mode();
    let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
}
